// A process that runs operations on a GPU of the stand-in until a fault ends them: its own or that of another rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"
#include "worker_sdk/comm/testing/rank_processes.h"

namespace ddprun {

// What happens, to which rank, and when.
struct GpuFault {
  // "kill", "stop", "exit": the process gets SIGKILL or SIGSTOP, or calls _exit; "leave": it destroys its communicator;
  // "error": an asynchronous error of NCCL; "fail", "hang": a call of NCCL returns an error, or stays in progress; "lost": the
  // device is lost.
  std::string kind;
  // "init": while NCCL connects the ranks; "operation": within operation `number`; "between": after it; "abort": while the rank
  // aborts that operation, because the rank after the victim has called Abort.
  std::string moment;
  int victim = 0;
  std::string operation;  // "all-reduce", ...: see kGpuOperations; or kGpuMessages
  int64_t num_elems = 1;
  int64_t number = 1;  // 1, 2, ...
  int64_t delay_ns =
      0;             // from the beginning of the moment to the fault, for faults that do not happen in a call
  int64_t seed = 1;  // of the stand-in

  [[nodiscard]] std::vector<std::string> ToArgs() const;
  static GpuFault FromArgs(const std::vector<std::string>& args);

  // The rank that calls Abort, if the moment is "abort".
  [[nodiscard]] int Aborter(int world_size) const { return (victim + 1) % world_size; }
};

inline constexpr const char* kGpuOperations[] = {"all-reduce", "reduce",     "reduce-scatter",
                                                 "all-gather", "all-to-all", "broadcast"};
// Each rank sends to the next one, and receives from the one before it.
inline constexpr char kGpuMessages[] = "messages";
inline constexpr char kReasonOfAbort[] = "the test ends the operation";

// The time limits that end a fault which nothing else ends: of operations, and of the initialization.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr Duration kGpuFaultDeadline = seconds(10), kGpuFaultSetupTimeout = seconds(15);
#else
inline constexpr Duration kGpuFaultDeadline = seconds(2), kGpuFaultSetupTimeout = seconds(5);
#endif
// How long ncclCommAbort of the victim takes if the moment is "abort": if the fault is that, and otherwise.
inline constexpr Duration kSlowAbort = milliseconds(1500), kAbortWindow = milliseconds(400);
// How long NCCL's initialization takes at least if the moment is "init".
inline constexpr Duration kInitWindow = milliseconds(20);

// Exit codes.
inline constexpr int kFaultEnded = 42;  // outcome/<rank> in the store is the first error
inline constexpr int kFaultLeft = 43;   // that, and outcome/<rank> says what the stand-in still counts

// Runs operation 0, which is the setup, and operations 1, 2, ..., and writes the FaultBoard of self.store_dir. Returns the exit
// code, unless the fault ends the process. self.args: those of GpuFault.
int RunGpuFaultRank(RankProcess& self);

}  // namespace ddprun

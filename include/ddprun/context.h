// The entry point for a training program: a worker's place in its round, and its connection to the other workers and
// to the agent that started it.
//
//   int main() {
//     ddprun::StatusOr<ddprun::Context> context = ddprun::Context::FromEnvironment();
//     if (!context.ok()) ...
//     ddprun::StatusOr<ddprun::Communicator> world = context->Connect();
//     if (!world.ok()) ...
//     for (int64_t step = 1; step <= 1000; ++step) {
//       ...
//       context->Report(step);
//     }
//   }
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ddprun/communicator.h"
#include "ddprun/export.h"
#include "ddprun/status.h"
#include "ddprun/tensor.h"
#include "ddprun/time.h"

namespace ddprun {

// What a worker is doing. `ddpctl status` shows it.
enum class Phase : int {
  kStarting = 1,  // connecting, building the model
  kLoading = 2,   // reading data or a snapshot
  kTraining = 3,
  kSnapshotting = 4,  // may take long without a step
  kFinishing = 5,     // all steps are done
};

// Why a rank stops before all steps are done; see Context::stop_notice.
struct StopNotice {
  TimePoint stop_by;   // when the launcher ends the round; then workers that are left get SIGTERM
  std::string reason;  // for people
};

struct ConnectOptions {
  // Time limit for all ranks to appear and connect.
  Duration setup_timeout = std::chrono::seconds(60);
  // Time limit for Work::Wait() without a deadline. Should be equal on all ranks; the shortest applies.
  Duration timeout = std::chrono::seconds(300);
  // The GPU whose memory operations accept in addition to that of the host: {DeviceType::kCuda, index}. Index -1 means the
  // GPU of this worker: its local rank, or 0 if the process sees one GPU. All ranks must have a GPU, or none.
  Device device = {};
};

namespace internal {
struct ContextState;
}  // namespace internal

// Movable.
//   Threads: one caller at a time.
class DDPRUN_EXPORT Context {
 public:
  // Reads the variables that ddprun or torchrun has set; opens no connection. Without them, the world size is 1.
  //   Errors: kInvalidArgument: an invalid variable, named in the message;
  //           kFailedPrecondition: the environment requires rank 0 to host the store.
  static StatusOr<Context> FromEnvironment();
  explicit Context(std::unique_ptr<internal::ContextState> state);  // for the library
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;

  [[nodiscard]] int rank() const;              // 0..world_size() - 1
  [[nodiscard]] int world_size() const;        // workers in the round, on all nodes
  [[nodiscard]] int local_rank() const;        // 0..local_world_size() - 1
  [[nodiscard]] int local_world_size() const;  // workers on this node
  [[nodiscard]] int node_rank() const;         // the node's number, 0..num_nodes() - 1
  [[nodiscard]] int num_nodes() const;
  [[nodiscard]] int64_t round() const;              // increases with every restart and change of the nodes
  [[nodiscard]] int restart_count() const;          // failures charged to the job so far
  [[nodiscard]] const std::string& run_id() const;  // the name of the job

  // Creates a communicator for all ranks of the round, and returns once all ranks are connected. Each call creates
  // a new communicator; all ranks must make the same number of calls.
  //   Errors: kInvalidArgument: the environment is inconsistent or contradicts that of another rank;
  //           kFailedPrecondition: the machine or the installation has no such GPU; the message says what is missing;
  //           kDeadlineExceeded: a rank did not appear in time; the message names the rank;
  //           kUnavailable: a rank died during setup, or the store is not reachable.
  StatusOr<Communicator> Connect(const ConnectOptions& options = {});

  // Asks the agent to let this process live when its round ends; see NextRound. Call it once, before Connect(). Without an agent
  // that agrees (torchrun, an older release) it has no effect. The consent ends with the process, also if it calls exec. A
  // program that calls this must call NextRound or exit when an operation fails: the agent waits for it, and kills it at last.
  void Survive();
  // Whether NextRound(why) can help: the agent has agreed, it has not said that no round follows, and `why` is kUnavailable,
  // kAborted or kDeadlineExceeded. If not, return `why` and exit with an error, as without Survive().
  [[nodiscard]] bool MayContinue(const Status& why) const;
  // Ends the round on all ranks because of `why`, waits for the next round, and connects. rank(), world_size() and so on then
  // describe the new round; the environment variables still describe the first one. local_rank() does not change. Recover
  // (recover.h) brings all ranks of the new round to the same step.
  //   Before:  every communicator of the round fails with kAborted, its operations end, its threads are joined. Handles stay
  //            valid; their operations fail. This rank's part of a Buffer stays, as memory that only this process uses.
  //   Blocks:  until the agent offers a round, without a limit of its own. The agent ends processes that wait in vain.
  //   Errors:  kFailedPrecondition: no round follows, or MayContinue(why) is false, and nothing has changed; those of Connect,
  //            after which the new round counts: MayContinue says whether another one can help.
  //   Threads: the caller of Connect, while no other thread is in FinishTogether.
  StatusOr<Communicator> NextRound(const Status& why, const ConnectOptions& options = {});

  // Reports this worker's progress to its agent; then receives the agent's requests. If no worker of the round reports another step or
  // phase for three times as long as usual in the phase, the users are told, and with --on-hang=restart the round ends: report
  // kSnapshotting before a snapshot is written. Best effort: never blocks, and does nothing without an agent. Call it once per step.
  // `ddpctl status` shows how long the steps take, and which part of them is data: the time from a report of kLoading to the next
  // report.
  //   step: number of optimizer updates completed.
  //   text: for people, truncated to 1000 bytes.
  void Report(int64_t step, Phase phase = Phase::kTraining, std::string_view text = "");

  // True if the agent has requested a snapshot, for example because nodes wait to join. The Report that receives the
  // request sets this value. ReportSnapshot clears it, and so does the agent when it withdraws the request. One
  // snapshot per job is enough: if rank 0 writes the snapshots, the other ranks ignore the request.
  [[nodiscard]] bool snapshot_requested() const;

  // Set if a node of the job is about to be taken away, and the agent asks the workers of all nodes to take a snapshot and then
  // to exit with 0, or to call NextRound if this process survives its round. The Report that receives the request sets it. Ranks
  // receive it at different moments: stop after the same step on all ranks, which a collective decides, such as a sum over the
  // ranks of "I have the notice" in each step.
  [[nodiscard]] std::optional<StopNotice> stop_notice() const;

  // Reports that a snapshot of the state after `step` updates is complete and durable. Answers all requests received
  // so far. After a stop notice it waits, for at most 1 s, until the agent's socket has room for the report.
  void ReportSnapshot(int64_t step);

 private:
  friend struct internal::ContextState;
  std::unique_ptr<internal::ContextState> state_;  // null only after a move
};

}  // namespace ddprun

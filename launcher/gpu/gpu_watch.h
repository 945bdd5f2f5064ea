// Watches the GPUs of this node's workers: warns about processes that already use them, and finds out whether
// a GPU caused the failure of a worker.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.h"
#include "base/ids.h"
#include "base/time.h"
#include "base/worker_env.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/posix/stream_descriptor.hpp"
#include "boost/asio/steady_timer.hpp"
#include "launcher/agent/agent_log.h"
#include "launcher/config/launch_config.h"
#include "launcher/gpu/gpu_driver.h"
#include "launcher/gpu/gpu_errors.h"
#include "launcher/report/kernel_log.h"

namespace ddprun {

// Does nothing on machines without NVIDIA's driver. Never blocks `io`, and never fails the job: answers of the
// driver that come too late are not reported. The kernel's log is read if this process has permission; pids
// in it are used only in the initial PID namespace.
//   Cost:    without a driver, one call of access() per job. With a driver, each Xid message, each start and each
//            failure wake a thread.
//   Threads: the thread that runs `io`.
class GpuWatch {
 public:
  struct Options {
    // The value of CUDA_VISIBLE_DEVICES for the workers; nullopt: all GPUs.
    std::optional<std::string> visible = {};
    // The job says that its workers use GPUs: warn about other processes on them.
    bool handed_out = false;
    // Worker i can use only the i-th of the visible GPUs.
    bool narrowed = false;
    int num_workers = 1;
    // Paths that tests replace.
    std::string proc = "/proc";
    std::string kernel_log = "/dev/kmsg";
    std::string driver_device = "/dev/nvidiactl";
    Duration slow_driver = seconds(2);  // limit for the list of processes, if handed_out
  };

  // `log` must outlive this object. `read` is called when reading() becomes false.
  GpuWatch(boost::asio::io_context& io, Options options, const AgentLog* log, std::function<void()> read);
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;
  ~GpuWatch();

  // Asks the driver for the GPUs, in the background. Call once, before the first start of the workers. The library stays
  // open for reading the state of the GPUs' memory, unless CUDA_VISIBLE_DEVICES excludes all GPUs.
  void Open();
  // Call before each start. Calls `start` when the processes on the GPUs are known, or after kStartLimit,
  // whichever comes first; at once if there is nothing to wait for. If the answer comes after that, processes
  // that /proc does not show are not mentioned, because they may be the workers. Does not wait for the state of the
  // GPUs' memory, which is read again while the workers start.
  void BeforeStart(std::function<void()> start);

  void Started(LocalRank local_rank, pid_t pid);
  // A worker has failed: reads the state of the GPUs' memory in the background.
  void Failed();
  // True while that state is being read, at most kReadLimit.
  bool reading() const { return reading_; }

  // Returns a function that reads the use of the GPUs, and may block for as long as the driver does; it does not refer to this object. Null
  // if there is no driver, or if it has not answered before.
  std::function<std::vector<GpuUse>()> UseReader() const;

  // Returns one line for each finding about the worker's GPUs. Call it after all workers have ended, and when
  // reading() is false.
  std::vector<std::string> Evidence(const Failure& failure);

  static constexpr Duration kStartLimit = milliseconds(250);
  static constexpr Duration kReadLimit = milliseconds(500);

 private:
  struct Driver;  // the library, which one thread at a time uses
  struct Worker {
    pid_t pid = 0;
    TimePoint started = {};
  };

  static TimePoint Now() { return std::chrono::steady_clock::now(); }
  void OnGpus(std::optional<absl::StatusOr<std::vector<UsedGpu>>> gpus);
  // Makes no further calls. An open library stays open, because closing it may block if a GPU is broken.
  void AbandonDriver();
  void WarnAboutLeftovers() const;
  void StartPending();
  void OpenKernelLog();
  void CloseKernelLog();
  // Reads the log whenever the kernel adds to it, at most 20 times a second.
  void AwaitRecords();
  void ReadKernelLog();
  // Reads the state of the GPUs' memory until read_end_.
  void ReadHealth();
  // Reads it for comparison with that after a failure. The job may have waited for its start, or may have lost another
  // node, so the state that was read last may be old.
  void ReadBaseline();
  std::optional<LocalRank> WorkerOf(pid_t pid) const;
  // Indices in gpus_ of the GPUs that the worker can use.
  std::vector<size_t> GpusOf(LocalRank local_rank) const;

  boost::asio::io_context& io_;
  const Options options_;
  const AgentLog& log_;
  const std::function<void()> read_;
  const bool our_pids_;

  std::shared_ptr<Driver> driver_;  // null: no driver
  bool asking_ = false;             // for the GPUs
  bool late_ = false;               // the driver has not answered that in time
  bool stuck_ = false;              // a later call has not returned in time, so no other is made
  std::vector<UsedGpu> gpus_;       // empty: not known
  // Of gpus_, when it was last read; UsedGpu::health is that before the last start.
  std::vector<GpuMemoryHealth> now_;
  bool reading_baseline_ = false;
  bool use_baseline_ = false;  // no worker has failed since the last start
  bool reading_ = false;
  bool read_again_ = false;      // another worker has failed meanwhile
  TimePoint read_end_ = {};      // while reading_: when the driver counts as broken
  std::function<void()> start_;  // argument of BeforeStart
  boost::asio::steady_timer slow_timer_, start_timer_;

  std::optional<KernelLog> kernel_log_;
  boost::asio::posix::stream_descriptor records_;  // a duplicate of the log's descriptor
  boost::asio::steady_timer pause_;
  std::vector<SeenXid> seen_;            // one for each kind of message since each start
  TimePoint start_time_ = {};            // of the last start, before any of its workers existed
  std::map<LocalRank, Worker> workers_;  // last start of each
};

// The options for the workers of `config`, which inherit `environment`.
GpuWatch::Options GpuOptionsFor(const LaunchConfig& config, const EnvVars& environment);

}  // namespace ddprun

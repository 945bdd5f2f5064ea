#include "launcher/gpu/gpu_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/agent/background_task.h"
#include "launcher/config/driver_call.h"
#include "launcher/process/process_tree.h"

namespace ddprun {
namespace {

using boost::asio::posix::stream_descriptor;

constexpr Duration kPause = milliseconds(50);
// Workers do not use their GPUs earlier than this after their start.
constexpr Duration kNoUse = milliseconds(250);
constexpr size_t kMaxSeen = 1024;  // kinds of messages that are kept

}  // namespace

struct GpuWatch::Driver {
  std::mutex mutex;
  std::optional<Nvml> nvml;  // guarded by mutex
};

GpuWatch::GpuWatch(boost::asio::io_context& io, Options options, const AgentLog* log,
                   std::function<void()> read)
    : io_(io),
      options_(std::move(options)),
      log_(*log),
      read_(std::move(read)),
      our_pids_(KernelLogHasOurPids(options_.proc)),
      slow_timer_(io),
      start_timer_(io),
      records_(io),
      pause_(io) {}

GpuWatch::~GpuWatch() { AbandonDriver(); }

void GpuWatch::AbandonDriver() {
  static auto* const open = new std::vector<std::shared_ptr<Driver>>();
  if (driver_ != nullptr) open->push_back(std::exchange(driver_, nullptr));
}

void GpuWatch::Open() {
  if (!options_.handed_out && access(options_.driver_device.c_str(), F_OK) != 0) return;
  OpenKernelLog();
  driver_ = std::make_shared<Driver>();
  asking_ = true;
  ComputeInBackground<absl::StatusOr<std::vector<UsedGpu>>>(
      io_, DriverLimits().total,
      [driver = driver_, visible = options_.visible, leftovers = options_.handed_out, root = getpid(),
       proc = options_.proc]() -> absl::StatusOr<std::vector<UsedGpu>> {
        const DriverCall call;
        absl::StatusOr<Nvml> nvml = Nvml::Open();
        if (!nvml.ok()) return nvml.status();
        const std::lock_guard lock(driver->mutex);
        driver->nvml = *std::move(nvml);
        absl::StatusOr<std::vector<UsedGpu>> gpus =
            FindUsedGpus(*driver->nvml, visible, leftovers, root, proc);
        if (gpus.ok() && gpus->empty()) driver->nvml.reset();  // here, because closing may block
        return gpus;
      },
      [this](auto gpus) { OnGpus(std::move(gpus)); });
  slow_timer_.expires_after(options_.slow_driver);
  slow_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error || !asking_ || !options_.handed_out) return;
    late_ = true;
    log_.Say(absl::StrCat(
        "NVIDIA's driver library has not answered within ", options_.slow_driver / seconds(1),
        " s: processes of other jobs on the GPUs are not listed; check with nvidia-smi whether a "
        "GPU is broken"));
  });
  start_timer_.expires_after(kStartLimit);
  start_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) StartPending();
  });
}

void GpuWatch::OnGpus(std::optional<absl::StatusOr<std::vector<UsedGpu>>> gpus) {
  asking_ = false;
  slow_timer_.cancel();
  start_timer_.cancel();
  if (gpus && gpus->ok()) {
    gpus_ = **std::move(gpus);
    if (options_.narrowed) gpus_.resize(std::min(gpus_.size(), static_cast<size_t>(options_.num_workers)));
    for (const UsedGpu& gpu : gpus_) now_.push_back(gpu.health);
    if (start_time_ != TimePoint()) {
      // Workers may be running, which /proc may show under other pids than the driver.
      for (UsedGpu& gpu : gpus_) std::erase_if(gpu.leftovers, [](const Leftover& l) { return !l.visible; });
    }
    WarnAboutLeftovers();
    if (kernel_log_ && !kernel_log_->status().ok()) {
      log_.Detail(absl::StrCat("errors of GPUs in the kernel's log are not reported: ",
                               kernel_log_->status().message()));
    }
  } else {
    log_.Detail(absl::StrCat("errors of GPUs are not reported: ",
                             gpus ? gpus->status().message() : "the driver library does not respond"));
    AbandonDriver();
    CloseKernelLog();
  }
  StartPending();
}

void GpuWatch::WarnAboutLeftovers() const {
  for (const UsedGpu& gpu : gpus_) {
    if (!gpu.leftovers_status.ok()) log_.Detail(gpu.leftovers_status.message());
    if (!gpu.leftovers.empty() && !late_) log_.Say(LeftoverWarning(gpu.name, gpu.leftovers));
  }
}

void GpuWatch::BeforeStart(std::function<void()> start) {
  for (size_t i = 0; i < gpus_.size(); ++i) gpus_[i].health = now_[i];
  start_ = [this, start = std::move(start)] {
    ReadKernelLog();  // so that earlier messages are older than the workers
    start_time_ = Now();
    start();
  };
  const bool known = !asking_;  // otherwise the pending answer contains the state of the memory
  if (known || start_timer_.expiry() <= Now()) StartPending();
  if (known) ReadBaseline();
}

void GpuWatch::StartPending() {
  if (start_) std::exchange(start_, nullptr)();
}

void GpuWatch::OpenKernelLog() {
  kernel_log_.emplace(options_.kernel_log);
  const int fd = kernel_log_->fd() < 0 ? -1 : fcntl(kernel_log_->fd(), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return;
  boost::system::error_code error;
  records_.assign(fd, error);
  if (error) {
    close(fd);
    return;
  }
  AwaitRecords();
}

void GpuWatch::CloseKernelLog() {
  boost::system::error_code ignored;
  records_.close(ignored);
  pause_.cancel();
  kernel_log_.reset();
}

void GpuWatch::AwaitRecords() {
  records_.async_wait(stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
    if (error) return;  // also if the log is not a device: then it is read when a worker has failed
    ReadKernelLog();
    pause_.expires_after(kPause);
    pause_.async_wait([this](const boost::system::error_code& stopped) {
      if (!stopped) AwaitRecords();
    });
  });
}

void GpuWatch::ReadKernelLog() {
  if (!kernel_log_) return;
  kernel_log_->ReadNew([this, now = Now()](absl::string_view text) {
    std::optional<Xid> xid = ParseXid(text);
    if (!xid) return;
    log_.Detail(absl::StrCat("the kernel's log: ", text));
    // One error may be followed by thousands of messages of other kinds. They must not displace the first one, and
    // each lookup of a process costs time on the event loop.
    const auto same = std::find_if(seen_.begin(), seen_.end(), [&](const SeenXid& seen) {
      return seen.at >= start_time_ && SameKind(seen.xid, *xid);
    });
    if (same != seen_.end()) {
      ++same->count;
      return;
    }
    if (seen_.size() >= kMaxSeen) seen_.erase(seen_.begin(), seen_.begin() + kMaxSeen / 2);
    SeenXid& seen = seen_.emplace_back(SeenXid{.xid = *std::move(xid), .at = now, .has_our_pids = our_pids_});
    if (our_pids_ && seen.xid.pid) seen.worker = WorkerOf(*seen.xid.pid);
  });
}

std::optional<LocalRank> GpuWatch::WorkerOf(pid_t pid) const {
  // A child of a worker that has ended has another parent, but usually still the process group of the worker.
  const pid_t group = getpgid(pid);
  for (const auto& [local_rank, worker] : workers_) {
    if (pid == worker.pid || group == worker.pid) return local_rank;
  }
  for (const auto& [local_rank, worker] : workers_) {
    if (DescendsFrom(pid, worker.pid)) return local_rank;
  }
  return std::nullopt;
}

void GpuWatch::Started(LocalRank local_rank, pid_t pid) {
  if (driver_ == nullptr) return;
  workers_[local_rank] = {.pid = pid, .started = start_time_};
  // A message about the worker may have been read before this call.
  for (SeenXid& seen : seen_) {
    if (seen.has_our_pids && seen.xid.pid && !seen.worker && seen.at >= start_time_) {
      seen.worker = WorkerOf(*seen.xid.pid);
    }
  }
}

void GpuWatch::Failed() {
  if (driver_ == nullptr) return;
  ReadKernelLog();  // now: the children of the worker, which a message may name, are still running
  use_baseline_ = false;
  if (asking_ || stuck_ || gpus_.empty()) return;
  if (std::exchange(reading_, true)) {
    read_again_ = true;
    return;
  }
  read_end_ = Now() + kReadLimit;
  ReadHealth();
}

void GpuWatch::ReadHealth() {
  ComputeInBackground<std::vector<GpuMemoryHealth>>(
      io_, std::max(Duration::zero(), read_end_ - Now()),
      [driver = driver_, gpus = gpus_] {
        const DriverCall call;
        const std::lock_guard lock(driver->mutex);
        return ReadMemoryHealth(*driver->nvml, gpus);
      },
      [this](std::optional<std::vector<GpuMemoryHealth>> health) {
        if (health) {
          now_ = *std::move(health);
          if (std::exchange(read_again_, false) && Now() + kReadLimit / 2 < read_end_) return ReadHealth();
        } else {
          stuck_ = true;
          log_.Say(
              absl::StrCat("NVIDIA's driver library has not answered within ", kReadLimit / milliseconds(1),
                           " ms: ECC errors of GPUs are not reported; check with nvidia-smi whether a GPU is "
                           "broken"));
        }
        reading_ = false;
        read_();
      });
}

void GpuWatch::ReadBaseline() {
  if (driver_ == nullptr || stuck_ || reading_ || gpus_.empty()) return;
  use_baseline_ = true;
  if (std::exchange(reading_baseline_, true)) return;
  ComputeInBackground<std::vector<GpuMemoryHealth>>(
      io_, DriverLimits().total,
      [driver = driver_, gpus = gpus_] {
        const DriverCall call;
        const std::lock_guard lock(driver->mutex);
        return ReadMemoryHealth(*driver->nvml, gpus);
      },
      [this](std::optional<std::vector<GpuMemoryHealth>> health) {
        reading_baseline_ = false;
        if (!health) {
          if (!std::exchange(stuck_, true)) log_.Detail(DriverHasNotAnswered(DriverLimits().total));
          return;
        }
        // A late answer may contain errors of the workers.
        if (!use_baseline_ || Now() - start_time_ > kNoUse) return;
        now_ = *std::move(health);
        for (size_t i = 0; i < gpus_.size(); ++i) gpus_[i].health = now_[i];
      });
}

std::function<std::vector<GpuUse>()> GpuWatch::UseReader() const {
  if (driver_ == nullptr || asking_ || stuck_ || gpus_.empty()) return nullptr;
  return [driver = driver_, gpus = gpus_] {
    const DriverCall call;
    const std::lock_guard lock(driver->mutex);
    return ReadGpuUse(*driver->nvml, gpus);
  };
}

std::vector<size_t> GpuWatch::GpusOf(LocalRank local_rank) const {
  std::vector<size_t> indices;
  for (size_t i = 0; i < gpus_.size(); ++i) {
    if (!options_.narrowed || static_cast<int64_t>(i) == local_rank.value()) indices.push_back(i);
  }
  return indices;
}

std::vector<std::string> GpuWatch::Evidence(const Failure& failure) {
  const auto worker = workers_.find(failure.local_rank);
  if (worker == workers_.end() || worker->second.pid != failure.pid) return {};
  ReadKernelLog();
  FailedWorker failed = {
      .local_rank = failure.local_rank, .started = worker->second.started, .failed = failure.failed_at};
  std::vector<std::string> memory;
  for (const size_t i : GpusOf(failure.local_rank)) {
    const UsedGpu& gpu = gpus_[i];
    if (!gpu.address) continue;
    if (std::find(failed.gpus.begin(), failed.gpus.end(), *gpu.address) != failed.gpus.end())
      continue;  // MIG
    failed.gpus.push_back(*gpu.address);
    for (std::string& line : MemoryEvidence(*gpu.address, gpu.health, now_[i]))
      memory.push_back(std::move(line));
  }
  std::vector<std::string> lines = XidEvidence(seen_, failed);
  lines.insert(lines.end(), memory.begin(), memory.end());
  return lines;
}

GpuWatch::Options GpuOptionsFor(const LaunchConfig& config, const EnvVars& environment) {
  GpuWatch::Options options = {
      .handed_out = config.counts_gpus || config.virtual_local_rank || config.numa_binding.has_value(),
      .narrowed = config.virtual_local_rank,
      .num_workers = config.num_local_workers};
  for (const auto& [name, value] : environment) {
    if (name != "CUDA_VISIBLE_DEVICES") continue;
    options.visible = value;
    options.handed_out |= !value.empty();
  }
  return options;
}

}  // namespace ddprun

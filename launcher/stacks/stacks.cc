#include "launcher/stacks/stacks.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "launcher/process/process_tree.h"
#include "launcher/stacks/folded.h"
#include "launcher/stacks/missing.h"
#include "launcher/stacks/target.h"
#include "launcher/stacks/tool_process.h"

namespace ddprun {
namespace {

using std::chrono::steady_clock;

// How often it is looked whether gdb has attached, and whether a tool has ended without an end of its output.
constexpr milliseconds kTick(2);
constexpr milliseconds kEndGrace(400);  // for tools to end after SIGKILL
// py-spy fails now and then to read the frames of a thread that runs.
constexpr int kPySpyTries = 3;
constexpr size_t kMaxLine = 200;  // bytes of a tool's output in a sentence

enum class Cut { kNo, kTool, kAll, kPause };  // the limit that a tool has reached

// A process of a job.
struct Piece {
  const Target* target = nullptr;
  size_t threads = 0;  // at most so many are shown by gdb
  std::optional<TimePoint> attached = {};
  std::optional<TimePoint> detached = {};

  pid_t pid() const { return target->process.pid; }
  bool is_attached() const { return attached && !detached; }
};

// One run of a tool: of py-spy for one process, of gdb for all.
struct Job {
  bool gdb = false;
  std::string file = {};  // of the tool
  std::vector<Piece> pieces = {};
  int tries = 0;
  std::unique_ptr<ToolProcess> tool = {};
  TimePoint start = {};
  Cut cut = Cut::kNo;

  const char* name() const { return gdb ? "gdb" : "py-spy"; }
  const char* stacks() const { return gdb ? "native stacks" : "Python stacks"; }
};

bool StillThere(const Target& target) {
  const auto now = ReadProcess(target.process.pid);
  return now && !now->dead() && now->start_time == target.process.start_time;
}

std::string Seconds(Duration d) { return absl::StrCat(std::chrono::duration<double>(d).count(), " s"); }

// The line of the output that tells most about an error, without the pid, so that equal errors have equal lines.
std::string ErrorLine(const std::string& output, pid_t pid) {
  std::string found;
  for (const absl::string_view line : absl::StrSplit(output, '\n')) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(line);
    if (stripped.empty()) continue;
    const bool error = absl::StrContains(stripped, "rror");
    if (found.empty() || error) found = std::string(stripped.substr(0, kMaxLine));
    if (error) break;
  }
  for (char& c : found) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  absl::StrReplaceAll({{absl::StrCat(pid), "PID"}}, &found);
  return found.empty() ? "no output" : found;
}

std::string Ending(int status) {
  if (status == -1) return "unknown exit status";
  return WIFSIGNALED(status) ? absl::StrCat("killed by signal ", WTERMSIG(status))
                             : absl::StrCat("exit status ", WEXITSTATUS(status));
}

// Leaves the process as it was before gdb attached, if gdb could not do that itself. The kernel detaches when gdb is killed, but a
// process to which gdb has just attached has then a SIGSTOP pending.
void Release(const Target& target) {
  if (!target.stopped) {
    SignalProcess(target.process, SIGCONT);
    return;
  }
  const auto now = ReadProcess(target.process.pid);
  if (now && now->state != 'T') SignalProcess(target.process, SIGSTOP);
}

class Collector {
 public:
  Collector(StackKind kind, const StackLimits& limits)
      : kind_(kind), limits_(limits), end_(steady_clock::now() + limits.all), threads_left_(limits.threads) {}

  Stacks Collect(const std::vector<pid_t>& pids) {
    Plan(pids);
    while (!waiting_.empty() || !running_.empty()) {
      const TimePoint now = steady_clock::now();
      if (now >= end_) {
        for (const Job& job : waiting_) NotInTime(job);
        waiting_.clear();
      }
      if (now >= end_ + kEndGrace) break;
      while (!waiting_.empty() && running_.size() < AtOnce()) StartNext();
      Wait();
      for (size_t i = 0; i < running_.size();) {
        Watch(running_[i]);
        if (!running_[i].tool->Poll()) {
          ++i;
          continue;
        }
        Job job = std::move(running_[i]);
        running_.erase(running_.begin() + static_cast<ptrdiff_t>(i));
        Finish(std::move(job));
      }
    }
    for (Job& job : running_) Finish(std::move(job));  // they do not end, even after SIGKILL
    running_.clear();
    return Result();
  }

 private:
  size_t AtOnce() const {
    if (limits_.at_once > 0) return static_cast<size_t>(limits_.at_once);
    return std::max(1U, std::thread::hardware_concurrency() / 4);
  }

  std::string Find(const std::string& name, const Target& target) const {
    const char* const path = std::getenv("PATH");
    std::string file = FindTool(name, limits_.path ? *limits_.path : path == nullptr ? "" : path);
    if (name != "py-spy") return file;
    for (const std::string& folder : target.tool_folders) {
      if (file.empty()) file = FindTool(name, folder);
    }
    return file;
  }

  // py-spy comes first: it takes milliseconds, so a limit of time affects gdb.
  void Plan(const std::vector<pid_t>& pids) {
    std::set<pid_t> seen;
    for (const pid_t pid : pids) {
      if (pid <= 0 || !seen.insert(pid).second) continue;
      if (auto target = Inspect(pid, limits_.threads)) targets_.push_back(*std::move(target));
    }
    for (const Target& target : targets_) {
      if (!target.python) continue;
      Job job = {.file = Find("py-spy", target), .pieces = {{.target = &target}}};
      if (job.file.empty()) {
        missing_.Add("no Python stacks", "py-spy is not installed: pip install py-spy", target.process.pid);
      } else {
        waiting_.push_back(std::move(job));
      }
    }
    if (kind_ == StackKind::kNative) PlanGdb();
  }

  void PlanGdb() {
    Job job = {.gdb = true, .file = Find("gdb", {})};
    for (const Target& target : targets_) {
      const pid_t pid = target.process.pid;
      const size_t threads = std::min(target.threads, threads_left_);
      std::string why;
      if (job.file.empty()) {
        why = "gdb is not installed: install the package gdb";
      } else if (target.blocked) {
        why = "it is blocked in the kernel (state D), and gdb would hang";
      } else if (const pid_t tracer = TracerOf(pid); tracer != 0) {
        const auto process = ReadProcess(tracer);
        why = absl::StrCat("it is traced by ", process ? process->comm : "process", " (pid ", tracer,
                           "), and a process has at most one tracer");
      } else if (threads == 0) {
        why = TooManyThreads();
      }
      if (!why.empty()) {
        missing_.Add("no native stacks", why, pid);
        continue;
      }
      if (threads < target.threads) missing_.Add("not all native stacks", TooManyThreads(), pid);
      threads_left_ -= threads;
      job.pieces.push_back({.target = &target, .threads = threads});
    }
    if (!job.pieces.empty()) waiting_.push_back(std::move(job));
  }

  std::string TooManyThreads() const {
    return absl::StrCat("the processes have more than ", limits_.threads, " threads");
  }

  void AddMissing(const Job& job, const Piece& piece, bool found, const std::string& why) {
    if (!StillThere(*piece.target)) return;
    missing_.Add(absl::StrCat(found ? "not all " : "no ", job.stacks()), why, piece.pid());
  }

  void NotInTime(const Job& job) {
    for (const Piece& piece : job.pieces) {
      AddMissing(job, piece, false,
                 absl::StrCat("the time limit of ", Seconds(limits_.all), " was reached before ", job.name(),
                              " was started"));
    }
  }

  void StartNext() {
    Job job = std::move(waiting_.front());
    waiting_.pop_front();
    std::vector<GdbTarget> targets;
    for (const Piece& piece : job.pieces)
      targets.push_back({.target = piece.target, .threads = piece.threads});
    const ToolCommand command =
        job.gdb ? GdbCommand(job.file, targets) : PySpyCommand(job.file, job.pieces[0].pid());
    ++job.tries;
    job.start = steady_clock::now();
    job.tool = std::make_unique<ToolProcess>(command, limits_.tool_output * job.pieces.size());
    running_.push_back(std::move(job));
  }

  // Until a tool has written something, but at most for one tick.
  void Wait() const {
    std::vector<pollfd> fds;
    for (const Job& job : running_)
      fds.push_back({.fd = job.tool->output_fd(), .events = POLLIN, .revents = 0});
    poll(fds.data(), fds.size(), static_cast<int>(kTick.count()));
  }

  // Kills the tool if it has reached a limit.
  void Watch(Job& job) {
    const TimePoint now = steady_clock::now();
    bool paused_too_long = false;
    for (Piece& piece : job.pieces) {
      if (!job.gdb || piece.detached || job.tool->start_error() != 0) continue;
      const bool traced = TracerOf(piece.pid()) == job.tool->pid();
      if (traced && !piece.attached) piece.attached = now;
      if (!traced && piece.attached) piece.detached = now;
      paused_too_long |= piece.is_attached() && now - *piece.attached > limits_.pause;
    }
    if (job.cut != Cut::kNo) return;
    if (paused_too_long) {
      job.cut = Cut::kPause;
    } else if (now >= end_) {
      job.cut = Cut::kAll;
    } else if (now - job.start > limits_.tool) {
      job.cut = Cut::kTool;
    }
    if (job.cut != Cut::kNo) job.tool->Kill();
  }

  void Finish(Job job) {
    if (job.gdb) {
      FinishGdb(std::move(job));
      return;
    }
    const ToolProcess& tool = *job.tool;
    std::vector<ToolThread> threads = ParsePySpy(tool.output());
    const bool found = !threads.empty();
    if (found) python_[job.pieces[0].pid()] = std::move(threads);
    const bool killed = job.cut != Cut::kNo || tool.too_much_output();
    if (found && !killed) return;
    if (!found && !killed && job.tries < kPySpyTries && tool.start_error() == 0 &&
        !SaysNoPermission(tool.output()) && StillThere(*job.pieces[0].target)) {
      job.tool = nullptr;
      waiting_.push_front(std::move(job));
      return;
    }
    AddMissing(job, job.pieces[0], found, Why(job, job.pieces[0], tool.output()));
  }

  void FinishGdb(Job job) {
    const ToolProcess& tool = *job.tool;
    const bool aborted =
        job.cut != Cut::kNo || tool.too_much_output() || tool.status() == -1 || WIFSIGNALED(tool.status());
    std::optional<size_t> last;  // the last process that gdb has reached
    for (size_t i = 0; i < job.pieces.size(); ++i) {
      Piece& piece = job.pieces[i];
      if (piece.attached)
        paused_[piece.pid()] = piece.detached.value_or(steady_clock::now()) - *piece.attached;
      if (piece.attached || GdbSection(tool.output(), piece.pid())) last = i;
    }
    if (aborted && last) Release(*job.pieces[*last].target);
    Job rest = {.gdb = true, .file = job.file};
    for (size_t i = 0; i < job.pieces.size(); ++i) {
      const Piece& piece = job.pieces[i];
      const bool in_time = job.cut != Cut::kTool && job.cut != Cut::kAll;
      if (aborted && in_time && last && i > *last) {
        rest.pieces.push_back({.target = piece.target, .threads = piece.threads});
        continue;
      }
      // Without a section, gdb has written nothing about one process in particular, but for example why it cannot start.
      const std::string section = GdbSection(tool.output(), piece.pid()).value_or(last ? "" : tool.output());
      std::vector<ToolThread> threads = ParseGdb(section);
      const bool found = !threads.empty();
      if (found) native_[piece.pid()] = std::move(threads);
      if (!found || (aborted && (!last || i >= *last)))
        AddMissing(job, piece, found, Why(job, piece, section));
    }
    if (!rest.pieces.empty()) waiting_.push_front(std::move(rest));
  }

  // Why the tool has not shown all stacks of a process. `output`: what it has written about the process.
  std::string Why(const Job& job, const Piece& piece, const std::string& output) const {
    const ToolProcess& tool = *job.tool;
    const std::string name = job.name();
    if (tool.start_error() != 0) {
      return absl::StrCat(name, " cannot be started: ", std::strerror(tool.start_error()));
    }
    if (tool.too_much_output()) {
      return absl::StrCat(name, " has written more than ", limits_.tool_output * job.pieces.size(), " bytes");
    }
    switch (job.cut) {
      case Cut::kPause:
        return absl::StrCat("gdb has paused it for longer than ", Seconds(limits_.pause));
      case Cut::kTool:
        return absl::StrCat(
            name, job.gdb && !piece.attached ? " has not read all symbols within " : " has not ended within ",
            Seconds(limits_.tool));
      case Cut::kAll:
        return absl::StrCat(name, " has not ended within the time limit of ", Seconds(limits_.all));
      case Cut::kNo:
        break;
    }
    if (SaysNoPermission(output)) {
      return absl::StrCat(name, " is not permitted to look at it: ", PermissionRemedy(PtraceScope()));
    }
    if (output.empty() && tool.status() != -1 && WIFEXITED(tool.status()) &&
        WEXITSTATUS(tool.status()) == 127) {
      return absl::StrCat(
          job.file, " cannot be executed: is it a program for this machine, and does its interpreter exist?");
    }
    if (tool.status() != 0) {
      return absl::StrCat(name, " has failed (", Ending(tool.status()),
                          "): ", ErrorLine(output, piece.pid()));
    }
    return absl::StrCat("the output of ", job.file, " is not understood: ", ErrorLine(output, piece.pid()));
  }

  // The stacks of one process: native ones with the Python frames in them, then the Python stacks that are left.
  std::vector<ThreadStack> Merged(pid_t pid) {
    std::vector<ThreadStack> stacks;
    std::vector<ToolThread>& python = python_[pid];
    for (ToolThread& thread : python) {
      if (thread.thread == 0 && thread.name == "MainThread") thread.thread = pid;
    }
    const auto add = [&](const ToolThread& thread, const std::string& name,
                         const std::vector<std::string>& frames, const std::string& program_frame) {
      stacks.push_back({.thread = thread.thread,
                        .name = name,
                        .main = thread.thread == pid,
                        .folded = Fold(frames, limits_.stack),
                        .program_frame = program_frame});
    };
    std::set<pid_t> merged;
    for (const ToolThread& thread : native_[pid]) {
      const auto same = std::find_if(python.begin(), python.end(),
                                     [&](const ToolThread& p) { return p.thread == thread.thread; });
      if (same == python.end()) {
        add(thread, thread.name, WithPython(thread.frames, {}), "");
      } else {
        add(thread, same->name.empty() ? thread.name : same->name, WithPython(thread.frames, same->frames),
            same->program_frame);
        merged.insert(thread.thread);
      }
    }
    for (const ToolThread& thread : python) {
      if (merged.count(thread.thread) == 0) add(thread, thread.name, thread.frames, thread.program_frame);
    }
    std::stable_partition(stacks.begin(), stacks.end(), [](const ThreadStack& s) { return s.main; });
    return stacks;
  }

  Stacks Result() {
    Stacks result;
    size_t left = limits_.threads;
    for (const Target& target : targets_) {
      const pid_t pid = target.process.pid;
      std::vector<ThreadStack> stacks = Merged(pid);
      if (stacks.size() > left) {
        stacks.resize(left);
        missing_.Add("not all stacks", TooManyThreads(), pid);
      }
      left -= stacks.size();
      if (!stacks.empty()) result.of[pid] = std::move(stacks);
    }
    result.paused = std::move(paused_);
    result.missing = missing_.Sentences();
    return result;
  }

  const StackKind kind_;
  const StackLimits limits_;
  const TimePoint end_;
  size_t threads_left_;  // that gdb may show
  std::deque<Target> targets_;
  std::deque<Job> waiting_;
  std::vector<Job> running_;
  std::map<pid_t, std::vector<ToolThread>> python_, native_;
  std::map<pid_t, Duration> paused_;
  Missing missing_;
};

}  // namespace

Stacks CollectStacks(const std::vector<pid_t>& pids, StackKind kind, const StackLimits& limits) {
  return Collector(kind, limits).Collect(pids);
}

}  // namespace ddprun

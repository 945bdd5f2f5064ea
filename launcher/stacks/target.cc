#include "launcher/stacks/target.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <fstream>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "os/descriptor.h"

namespace ddprun {
namespace {

using absl::string_view;

constexpr size_t kMaxProcFile = 8 << 20;  // bytes of a file of /proc
// gdb reads the symbols of files of this size before it attaches. Those of smaller files take milliseconds.
constexpr off_t kLargeLibrary = 512 << 10;
constexpr size_t kMaxLibraries = 300;
constexpr int kMaxFrames = 128;  // of a thread

std::string ReadProcFile(pid_t pid, const char* name) {
  std::string text;
  const UniqueFd fd(open(absl::StrCat("/proc/", pid, "/", name).c_str(), O_RDONLY | O_CLOEXEC));
  char buffer[16 << 10];
  while (fd && text.size() < kMaxProcFile) {
    const ssize_t n = read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  return text;
}

std::string ExeOf(pid_t pid) {
  char path[PATH_MAX];
  const ssize_t n = readlink(absl::StrCat("/proc/", pid, "/exe").c_str(), path, sizeof path);
  return n <= 0 || n == sizeof path ? "" : std::string(path, static_cast<size_t>(n));
}

string_view BaseName(string_view path) { return path.substr(path.rfind('/') + 1); }
string_view Folder(string_view path) { return path.substr(0, path.rfind('/')); }

// The files that the process maps as programs, each once.
std::vector<std::string> MappedPrograms(pid_t pid) {
  std::vector<std::string> files;
  std::set<string_view> seen;
  const std::string maps = ReadProcFile(pid, "maps");
  for (const string_view line : absl::StrSplit(maps, '\n')) {
    // 7f1200000000-7f1200100000 r-xp 00000000 08:01 1234    /usr/lib/libm.so.6
    const size_t space = line.find(' ');
    const size_t slash = line.find('/');
    if (space == string_view::npos || slash == string_view::npos || line.size() < space + 4) continue;
    if (line[space + 3] != 'x' || !seen.insert(line.substr(slash)).second) continue;
    files.emplace_back(line.substr(slash));
  }
  return files;
}

// True if the path needs no quoting in a command of gdb.
bool IsPlainPath(string_view path) {
  for (const char c : path) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        string_view("/._-+,:@%=~").find(c) == string_view::npos) {
      return false;
    }
  }
  return true;
}

bool IsOurs(pid_t pid) {
  struct stat info;
  return stat(absl::StrCat("/proc/", pid).c_str(), &info) == 0 && info.st_uid == geteuid();
}

// Folders in which a process has py-spy, if it has its own. Those of other users are not used: this process would run what they name.
std::vector<std::string> ToolFolders(const Target& target) {
  std::vector<std::string> folders;
  const pid_t pid = target.process.pid;
  if (!IsOurs(pid)) return folders;
  if (!target.blocked) {
    const std::string environment = ReadProcFile(pid, "environ");
    for (string_view variable : absl::StrSplit(environment, '\0')) {
      if (absl::ConsumePrefix(&variable, "PATH=")) folders.emplace_back(variable);
    }
    // In a virtual environment the interpreter is a link, and only its first argument has the folder of the link.
    const std::string line = ReadProcFile(pid, "cmdline");
    const string_view program = string_view(line).substr(0, line.find('\0'));
    if (absl::StartsWith(program, "/")) folders.emplace_back(Folder(program));
  }
  if (absl::StartsWith(target.exe, "/")) folders.emplace_back(Folder(target.exe));
  return folders;
}

// Not the whole environment of this process: PYTHONHOME, LD_PRELOAD or DEBUGINFOD_URLS would change what the tools do.
std::vector<std::string> ToolEnvironment() {
  std::vector<std::string> env = {"LC_ALL=C", "NO_COLOR=1", "TERM=dumb", "RUST_BACKTRACE=0"};
  for (const char* const name : {"PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr) env.push_back(absl::StrCat(name, "=", value));
  }
  return env;
}

// What gdb writes before it attaches to a process.
constexpr char kAttachMark[] = "ddprun attaches ";

}  // namespace

std::optional<Target> Inspect(pid_t pid, size_t max_threads) {
  auto process = ReadProcess(pid);
  if (!process || process->dead()) return std::nullopt;
  Target target;
  target.process = *std::move(process);
  const std::vector<ProcessEntry> threads = Threads(pid, max_threads + 1);
  target.threads = threads.size();
  target.stopped = target.process.state == 'T';
  target.blocked = target.process.state == 'D';
  for (const ProcessEntry& thread : threads) target.blocked |= thread.state == 'D';
  target.exe = ExeOf(pid);
  const string_view program = target.exe.empty() ? string_view(target.process.comm) : BaseName(target.exe);
  target.python = absl::StartsWith(program, "python");
  if (!target.blocked) {
    for (const std::string& file : MappedPrograms(pid)) {
      target.python |= absl::StartsWith(BaseName(file), "libpython");
      struct stat info;
      if (target.libraries.size() < kMaxLibraries && IsPlainPath(file) && stat(file.c_str(), &info) == 0 &&
          info.st_size >= kLargeLibrary) {
        target.libraries.push_back(file);
      }
    }
  }
  if (target.python) target.tool_folders = ToolFolders(target);
  return target;
}

std::string FindTool(const std::string& name, string_view path) {
  for (const string_view folder : absl::StrSplit(path, ':')) {
    if (!absl::StartsWith(folder, "/")) continue;
    const std::string file = absl::StrCat(folder, "/", name);
    struct stat info;
    if (stat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(file.c_str(), X_OK) == 0)
      return file;
  }
  return "";
}

ToolCommand PySpyCommand(const std::string& file, pid_t pid) {
  return {.file = file,
          .argv = {"py-spy", "dump", "--nonblocking", "--pid", absl::StrCat(pid), "--full-filenames"},
          .env = ToolEnvironment()};
}

ToolCommand GdbCommand(const std::string& file, const std::vector<GdbTarget>& targets) {
  std::vector<std::string> argv = {"gdb", "-nx", "-batch", "-iex", "set auto-load off"};
  const auto run = [&argv](std::string command) {
    argv.emplace_back("-ex");
    argv.push_back(std::move(command));
  };
  for (
      const char* const setting :
      {"debuginfod enabled off", "pagination off", "confirm off", "width 0", "height 0",
       // Demangling all names of PyTorch's libraries takes most of the time; ParseGdb demangles those that are shown.
       "demangle-style none",
       // The form that ParseGdb reads.
       "print address off", "print frame-arguments none", "print entry-values no", "print thread-events off",
       "print inferior-events off",
       // The process is not changed.
       "may-call-functions off", "may-write-memory off", "may-write-registers off",
       "may-insert-breakpoints off", "may-insert-tracepoints off"}) {
    run(absl::StrCat("set ", setting));
  }
  std::set<string_view> libraries;
  for (const GdbTarget& t : targets) libraries.insert(t.target->libraries.begin(), t.target->libraries.end());
  size_t left = kMaxLibraries;
  for (const string_view library : libraries) {
    if (left-- == 0) break;
    run(absl::StrCat("add-inferior -exec ", library));
  }
  const std::string* exe = nullptr;
  for (const GdbTarget& t : targets) {
    if (exe != nullptr && *exe != t.target->exe) run("file");  // forgets the program of the process before
    exe = &t.target->exe;
    run(absl::StrCat("echo ", kAttachMark, t.target->process.pid, "\\n"));
    run(absl::StrCat("attach ", t.target->process.pid));
    run(absl::StrCat("thread apply 1.1 backtrace ", kMaxFrames));
    if (t.threads > 1) run(absl::StrCat("thread apply 1.1-", t.threads, " backtrace ", kMaxFrames));
    run("detach");
  }
  return {.file = file, .argv = std::move(argv), .env = ToolEnvironment()};
}

std::optional<std::string> GdbSection(string_view output, pid_t pid) {
  const std::string mark = absl::StrCat(kAttachMark, pid, "\n");
  size_t begin = output.find(mark);
  if (begin == string_view::npos) return std::nullopt;
  begin += mark.size();
  return std::string(output.substr(begin, output.find(kAttachMark, begin) - begin));
}

bool SaysNoPermission(string_view output) {
  const std::string text = absl::AsciiStrToLower(output);
  return absl::StrContains(text, "permission denied") || absl::StrContains(text, "operation not permitted");
}

std::optional<int> PtraceScope() {
  std::ifstream file("/proc/sys/kernel/yama/ptrace_scope");
  int scope = 0;
  return file >> scope ? std::optional(scope) : std::nullopt;
}

std::string PermissionRemedy(std::optional<int> ptrace_scope) {
  constexpr char kCapability[] =
      "the capability SYS_PTRACE (docker run --cap-add=SYS_PTRACE; securityContext.capabilities.add in "
      "Kubernetes)";
  if (!ptrace_scope || *ptrace_scope == 0) {
    return absl::StrCat("it must run as the user of the process, or with ", kCapability);
  }
  const std::string scope = absl::StrCat("/proc/sys/kernel/yama/ptrace_scope is ", *ptrace_scope);
  if (*ptrace_scope == 3)
    return absl::StrCat(
        scope, ", which forbids it until the next boot: set kernel.yama.ptrace_scope in sysctl.conf");
  return absl::StrCat(scope, ": set it to 0, or run ddprun with ", kCapability);
}

}  // namespace ddprun

#include "tests/fault/testing/traces.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "tests/fault/testing/read_all.h"

namespace ddprun {
namespace {

std::string Proc(pid_t pid, const std::string& file) { return "/proc/" + std::to_string(pid) + "/" + file; }

void ForEachProcess(const std::function<void(pid_t)>& f) {
  DIR* const dir = opendir("/proc");
  while (const dirent* entry = readdir(dir)) {
    if (const pid_t pid = atoi(entry->d_name); pid > 0) f(pid);
  }
  closedir(dir);
}

// A zombie has no environment, so it never matches.
bool HasMark(pid_t pid, const std::string& mark) {
  const std::string environ = '\0' + ReadAll(Proc(pid, "environ"));
  return environ.find('\0' + mark + '\0') != std::string::npos;
}

std::string Comm(pid_t pid) {
  std::string name = ReadAll(Proc(pid, "comm"));
  if (!name.empty()) name.pop_back();
  return name;
}

bool IsSharedMemory(const std::string& path) {
  return path.starts_with("/memfd:") || path.starts_with("/dev/shm/") || path.starts_with("/SYSV");
}

// Calls `f` with the inode and the name of every descriptor of `pid`.
void ForEachDescriptor(pid_t pid, const std::function<void(ino_t, const std::string&)>& f) {
  std::error_code ended;  // set if the process has ended
  for (std::filesystem::directory_iterator it(Proc(pid, "fd"), ended), last; !ended && it != last;
       it.increment(ended)) {
    std::error_code closed;
    const std::string target = std::filesystem::read_symlink(it->path(), closed).string();
    struct stat info;
    if (!closed && stat(it->path().c_str(), &info) == 0) f(info.st_ino, target);
  }
}

void ForEachMapping(pid_t pid, const std::function<void(ino_t, const std::string&)>& f) {
  std::istringstream maps(ReadAll(Proc(pid, "maps")));
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::string range, rights, offset, device, path;
    ino_t inode = 0;
    fields >> range >> rights >> offset >> device >> inode >> path;
    if (inode != 0) f(inode, path);
  }
}

void ForEachSharedMemory(pid_t pid, const std::function<void(ino_t, const std::string&)>& f) {
  const auto filter = [&f](ino_t inode, const std::string& path) {
    if (IsSharedMemory(path)) f(inode, path);
  };
  ForEachDescriptor(pid, filter);
  ForEachMapping(pid, filter);
}

// Returns the ports of the listening TCP sockets of this network namespace, by inode.
std::map<ino_t, int> ListeningPorts() {
  constexpr int kListen = 0x0a;
  std::map<ino_t, int> ports;
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::istringstream table(ReadAll(path));
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
      std::istringstream fields(line);
      std::string number, local, remote, state, queues, timer, retransmits, uid, timeout;
      ino_t inode = 0;
      fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >>
          inode;
      if (std::stoi(state, nullptr, 16) != kListen) continue;
      ports[inode] = std::stoi(local.substr(local.rfind(':') + 1), nullptr, 16);
    }
  }
  return ports;
}

std::map<ino_t, std::string> AbstractSockets() {
  std::map<ino_t, std::string> sockets;
  std::istringstream table(ReadAll("/proc/net/unix"));
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string number, references, protocol, flags, type, state, path;
    ino_t inode = 0;
    fields >> number >> references >> protocol >> flags >> type >> state >> inode >> path;
    if (path.starts_with("@")) sockets[inode] = path;
  }
  return sockets;
}

// Returns the live descendants of `root`, except `others` and their descendants.
std::vector<pid_t> Descendants(pid_t root, const std::vector<pid_t>& others) {
  std::multimap<pid_t, pid_t> children;
  std::set<pid_t> dead;
  ForEachProcess([&](pid_t pid) {
    // "PID (NAME) STATE PARENT ..."; the name may contain any characters.
    const std::string stat = ReadAll(Proc(pid, "stat"));
    std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
    char state = 'X';
    pid_t parent = 0;
    fields >> state >> parent;
    children.emplace(parent, pid);
    if (state == 'Z' || state == 'X') dead.insert(pid);
  });
  std::vector<pid_t> found;
  std::vector<pid_t> parents = {root};
  while (!parents.empty()) {
    const auto [begin, end] = children.equal_range(parents.back());
    parents.pop_back();
    for (auto it = begin; it != end; ++it) {
      if (std::count(others.begin(), others.end(), it->second) != 0) continue;
      parents.push_back(it->second);
      if (!dead.contains(it->second)) found.push_back(it->second);
    }
  }
  return found;
}

// Returns the live processes with the mark, and the live descendants of this process except `others` and
// their descendants.
std::map<pid_t, std::string> AliveOf(const std::string& mark, const std::vector<pid_t>& others) {
  std::map<pid_t, std::string> alive;
  ForEachProcess([&](pid_t pid) {
    if (HasMark(pid, mark)) alive[pid] = Comm(pid);
  });
  for (const pid_t pid : Descendants(getpid(), others)) alive[pid] = Comm(pid);
  return alive;
}

// Waits until one of `alive` has exited.
void AwaitAnEnd(const std::map<pid_t, std::string>& alive, TimePoint deadline) {
  std::vector<pollfd> ends;
  for (const auto& [pid, name] : alive) {
    const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (fd >= 0) ends.push_back({fd, POLLIN, 0});
  }
  const auto left = std::max<int64_t>(0, ToMillis(deadline - std::chrono::steady_clock::now()));
  if (ends.size() == alive.size()) poll(ends.data(), ends.size(), static_cast<int>(left));
  for (const pollfd& end : ends) close(end.fd);
}

}  // namespace

int Traces::Count(const std::string& name) const {
  return static_cast<int>(
      std::count_if(processes.begin(), processes.end(), [&](const auto& p) { return p.second == name; }));
}

pid_t Traces::Find(const std::string& name) const {
  for (const auto& [pid, comm] : processes) {
    if (comm == name) return pid;
  }
  return 0;
}

Traces TracesOf(const std::string& mark) {
  Traces found;
  const std::map<ino_t, int> ports = ListeningPorts();
  const std::map<ino_t, std::string> sockets = AbstractSockets();
  ForEachProcess([&](pid_t pid) {
    if (!HasMark(pid, mark)) return;
    found.processes[pid] = Comm(pid);
    ForEachDescriptor(pid, [&](ino_t inode, const std::string& target) {
      if (!target.starts_with("socket:")) return;
      if (const auto it = ports.find(inode); it != ports.end()) found.ports.insert(*it);
      if (const auto it = sockets.find(inode); it != sockets.end()) found.abstract_sockets.insert(*it);
    });
    ForEachSharedMemory(pid,
                        [&](ino_t inode, const std::string& path) { found.shared_memory[inode] = path; });
  });
  return found;
}

std::vector<std::string> LeftOf(const Traces& seen, const std::string& mark, const std::vector<pid_t>& others,
                                Duration timeout) {
  const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
  std::map<pid_t, std::string> alive = AliveOf(mark, others);
  while (!alive.empty() && std::chrono::steady_clock::now() < deadline) {
    AwaitAnEnd(alive, deadline);
    alive = AliveOf(mark, others);
  }
  std::set<std::string> left;
  for (const auto& [pid, name] : alive) left.insert("process " + std::to_string(pid) + " (" + name + ")");
  for (const auto& [inode, port] : ListeningPorts()) {
    if (seen.ports.contains(inode)) left.insert("port " + std::to_string(port));
  }
  for (const auto& [inode, path] : AbstractSockets()) {
    if (seen.abstract_sockets.contains(inode)) left.insert("abstract socket " + path);
  }
  ForEachProcess([&](pid_t pid) {
    if (seen.shared_memory.empty()) return;
    ForEachSharedMemory(pid, [&](ino_t inode, const std::string& path) {
      if (const auto it = seen.shared_memory.find(inode);
          it != seen.shared_memory.end() && it->second == path)
        left.insert("shared memory " + path + " held by " + Comm(pid));
    });
  });
  for (const auto& [inode, path] : seen.shared_memory) {
    struct stat info;
    if (path.starts_with("/dev/shm/") && stat(path.c_str(), &info) == 0 && info.st_ino == inode)
      left.insert("file " + path);
  }
  for (const auto& [pid, name] : alive) kill(pid, SIGKILL);
  return {left.begin(), left.end()};
}

bool AwaitEnds(const std::vector<pid_t>& pids, Duration timeout) {
  const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
  return std::all_of(pids.begin(), pids.end(), [deadline](pid_t pid) {
    const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (fd < 0) return true;
    pollfd end = {fd, POLLIN, 0};
    const auto left = std::max<int64_t>(0, ToMillis(deadline - std::chrono::steady_clock::now()));
    const bool ended = poll(&end, 1, static_cast<int>(left)) == 1;
    close(fd);
    return ended;
  });
}

void AdoptOrphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

}  // namespace ddprun

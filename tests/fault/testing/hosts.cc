#include "tests/fault/testing/hosts.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

#include "tests/fault/testing/job.h"
#include "tests/fault/testing/read_all.h"

namespace ddprun {
namespace {

constexpr char kIp[] = "/usr/sbin/ip";
constexpr char kIptables[] = "/usr/sbin/iptables";
constexpr char kTc[] = "/usr/sbin/tc";
constexpr char kSs[] = "/usr/bin/ss";
// Addresses from the range that is reserved for benchmarks (RFC 2544). The name server's address is that of
// the bridge, which never answers.
constexpr char kNetwork[] = "198.18.0.";
constexpr char kSecondNetwork[] = "198.18.1.";
constexpr char kNameServer[] = "198.18.0.250";

// Runs a program and returns its stdout. Aborts unless the program exits with 0 within 20 s.
std::string RunToEnd(const Args& argv, Birth birth = Birth::kDirect) {
  Process process(argv, Stdio::kPipes, {}, birth);
  const std::optional<ProcessEnd> end = process.Wait();
  if (end == ProcessEnd{.code = 0}) return process.out();
  for (const std::string& arg : argv) std::fprintf(stderr, "%s ", arg.c_str());
  std::fprintf(stderr, "failed: %s\n", process.err().c_str());
  std::abort();
}

Args InNamespaces(pid_t pid, const std::string& kinds, const Args& argv) {
  return Args{HostToolPath(), "enter", "3", std::to_string(pid), kinds} + argv;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> Fields(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::trunc) << text;  // in place, because the file is bind-mounted
}

std::string Proc(pid_t pid, const std::string& file) { return "/proc/" + std::to_string(pid) + "/" + file; }

std::string Link(const std::string& path) {
  std::error_code gone;
  return std::filesystem::read_symlink(path, gone).string();
}

// Returns the live processes in the pid namespace of `init`, except `init` itself.
std::vector<pid_t> OtherProcesses(pid_t init) {
  const std::string space = Link(Proc(init, "ns/pid"));
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || pid == init || Link(Proc(pid, "ns/pid")) != space) continue;
    const std::string stat = ReadAll(Proc(pid, "stat"));
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos || stat[name_end + 2] == 'Z' || stat[name_end + 2] == 'X') continue;
    found.push_back(pid);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string Comm(pid_t pid) {
  const std::vector<std::string> lines = Lines(ReadAll(Proc(pid, "comm")));
  return lines.empty() ? "" : lines[0];
}

}  // namespace

std::string Hosts::WhyNot() {
  for (const char* tool : {kIp, kIptables, kSs, kTc}) {
    if (access(tool, X_OK) != 0) return std::string(tool) + " is missing";
  }
  const std::string etc = MakeTestDirectory();
  for (const char* file : {"/hosts", "/resolv.conf"}) Write(etc + file, "");
  Process tool({HostToolPath(), "boot", "1", "try", etc});
  tool.Wait();
  pid_t init = 0;
  std::string error;
  while (error.empty()) {
    const std::vector<std::string> line = tool.AwaitOut("");
    if (line.empty()) break;
    if (line[0].starts_with("error: ")) error = "no namespaces: " + line[0];
    if (std::isdigit(static_cast<unsigned char>(line[0][0]))) init = std::stoi(line[0]);
  }
  if (error.empty() && init == 0) error = "no namespaces: " + tool.err();
  if (error.empty()) {
    Process link(InNamespaces(init, "net", {kIp, "link", "add", "type", "veth"}), Stdio::kPipes, {},
                 Birth::kReported);
    if (link.Wait() != ProcessEnd{.code = 0}) error = "no veth devices: " + link.err();
  }
  if (init != 0) {
    kill(init, SIGKILL);
    waitpid(init, nullptr, 0);
  }
  return error;
}

Hosts::Hosts(int n) : directory_(MakeTestDirectory()) {
  std::string names = "127.0.0.1 localhost\n";
  hosts_.resize(n);
  for (int i = 0; i < n; ++i) names += address(i) + " " + name(i) + "\n";
  Boot(switch_, "switch", names);
  const auto in_switch = [this](const Args& argv) {
    RunToEnd(InNamespaces(switch_.init->pid(), "net", argv), Birth::kReported);
  };
  in_switch({kIp, "link", "set", "lo", "up"});
  in_switch({kIp, "link", "add", "br0", "type", "bridge"});
  in_switch({kIp, "address", "add", std::string(kNameServer) + "/24", "dev", "br0"});
  in_switch({kIp, "link", "set", "br0", "up"});
  in_switch({kIptables, "-A", "INPUT", "-j", "DROP"});
  for (int i = 0; i < n; ++i) {
    Boot(hosts_[i], name(i), names);
    const std::string cable = "cable" + std::to_string(i);
    in_switch({kIp, "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns",
               std::to_string(hosts_[i].init->pid())});
    in_switch({kIp, "link", "set", cable, "master", "br0", "up"});
    Run(i, {kIp, "address", "add", address(i) + "/24", "dev", "eth0"});
    Run(i, {kIp, "link", "set", "lo", "up"});
    Run(i, {kIp, "link", "set", "eth0", "up"});
  }
}

Hosts::~Hosts() {
  // When the init of a pid namespace dies, the kernel kills all other processes in the namespace. A namespace
  // ends with its last process.
  for (Host& host : hosts_) host.init.reset();
}

void Hosts::Boot(Host& host, const std::string& name, const std::string& hosts_file) {
  host.directory = directory_ + "/" + name;
  host.etc = directory_ + "/etc-" + name;
  std::filesystem::create_directory(host.directory);
  std::filesystem::create_directory(host.etc);
  Write(host.etc + "/hosts", hosts_file);
  Write(host.etc + "/resolv.conf", "nameserver 127.0.0.1\n");  // no name server listens: queries fail
  host.init = std::make_unique<Process>(Args{HostToolPath(), "boot", "3", name, host.etc}, Stdio::kPipes,
                                        Environment{}, Birth::kReported);
}

std::string Hosts::name(int host) const { return "node" + std::to_string(host); }
std::string Hosts::address(int host) const { return kNetwork + std::to_string(host + 1); }
std::string Hosts::directory(int host) const { return hosts_[host].directory; }

std::unique_ptr<Process> Hosts::Start(int host, const std::vector<std::string>& argv, const Environment& more,
                                      Stdio stdio) const {
  // env(1) sets the variables. host_tool itself must not have them, because `more` may change how programs
  // load.
  Args with_more = {"/usr/bin/env", "TMPDIR=" + directory(host)};
  for (const auto& [name, value] : more) with_more.push_back(name + "=" + value);
  return std::make_unique<Process>(
      InNamespaces(hosts_[host].init->pid(), "net,uts,ipc,mnt,pid", with_more + argv), stdio, Environment{},
      Birth::kReported);
}

void Hosts::Run(int host, const std::vector<std::string>& argv) const {
  RunToEnd(InNamespaces(hosts_[host].init->pid(), "net,uts,ipc,mnt,pid", argv), Birth::kReported);
}

void Hosts::Cut(int host) {
  RunToEnd(
      InNamespaces(switch_.init->pid(), "net", {kIp, "link", "set", "cable" + std::to_string(host), "down"}),
      Birth::kReported);
}

void Hosts::Heal(int host) {
  RunToEnd(
      InNamespaces(switch_.init->pid(), "net", {kIp, "link", "set", "cable" + std::to_string(host), "up"}),
      Birth::kReported);
}

void Hosts::DropRule(int host, const std::string& change, const Args& which) {
  Run(host, Args{kIptables, change, "INPUT"} + which + Args{"-j", "DROP"});
}

void Hosts::DropPackets(int host, int from) { DropRule(host, "-A", {"-s", address(from)}); }
void Hosts::PassPackets(int host, int from) { DropRule(host, "-D", {"-s", address(from)}); }

void Hosts::Lossy(int host, double share) {
  DropRule(host, "-A",
           {"-i", "eth0", "-m", "statistic", "--mode", "random", "--probability", std::to_string(share)});
}
void Hosts::Unlossy(int host) { Run(host, {kIptables, "-F", "INPUT"}); }

void Hosts::Slow(int host, int kbit_per_second) {
  Run(host, {kTc, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate",
             std::to_string(kbit_per_second) + "kbit", "burst", "16kb", "latency", "200ms"});
}
void Hosts::Unslow(int host) { Run(host, {kTc, "qdisc", "del", "dev", "eth0", "root"}); }

int64_t Hosts::Dropped(int host) const {
  const std::string table =
      RunToEnd(InNamespaces(hosts_[host].init->pid(), "net", {kIptables, "-L", "INPUT", "-v", "-n", "-x"}),
               Birth::kReported);
  int64_t dropped = 0;
  for (const std::string& line : Lines(table)) {
    const std::vector<std::string> fields = Fields(line);
    if (fields.size() > 2 && fields[2] == "DROP") dropped += std::stoll(fields[0]);
  }
  return dropped;
}

void Hosts::LoseNames(int host) {
  Write(hosts_[host].etc + "/hosts", "127.0.0.1 localhost\n" + address(host) + " " + name(host) + "\n");
  Write(hosts_[host].etc + "/resolv.conf", std::string("nameserver ") + kNameServer + "\n");
}

void Hosts::ResetConnections(int host, int other) {
  // ss aborts the connections on `host`, and the kernel sends resets to `other`.
  Run(host, {kSs, "-K", "dst", address(other)});
}

void Hosts::ResolveOwnNameToLoopback(int host) {
  std::string names = "127.0.0.1 localhost\n127.0.1.1 " + name(host) + "\n";
  for (int i = 0; i < static_cast<int>(hosts_.size()); ++i) {
    if (i != host) names += address(i) + " " + name(i) + "\n";
  }
  Write(hosts_[host].etc + "/hosts", names);
}

void Hosts::Name(int host, const std::string& address, const std::string& name) {
  Write(hosts_[host].etc + "/hosts", "127.0.0.1 localhost\n" + address + " " + name + "\n");
}

void Hosts::AddNetwork() {
  const auto in_switch = [this](const Args& argv) {
    RunToEnd(InNamespaces(switch_.init->pid(), "net", argv), Birth::kReported);
  };
  in_switch({kIp, "link", "add", "br1", "type", "bridge"});
  in_switch({kIp, "link", "set", "br1", "up"});
  for (int i = 0; i < static_cast<int>(hosts_.size()); ++i) {
    const std::string cable = "second" + std::to_string(i);
    in_switch({kIp, "link", "add", cable, "type", "veth", "peer", "name", "eth1", "netns",
               std::to_string(hosts_[i].init->pid())});
    in_switch({kIp, "link", "set", cable, "master", "br1", "up"});
    Run(i, {kIp, "address", "add", SecondAddress(i) + "/24", "dev", "eth1"});
    Run(i, {kIp, "link", "set", "eth1", "up"});
  }
}

std::string Hosts::SecondAddress(int host) const { return kSecondNetwork + std::to_string(host + 1); }

void Hosts::Reset(int host) { hosts_[host].init.reset(); }

void Hosts::PowerOff(int host) {
  Cut(host);
  Reset(host);
}

std::vector<std::string> Hosts::Left(int host, Duration timeout) const {
  const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    std::vector<std::string> left = LeftNow(host);
    const auto millis = ToMillis(deadline - std::chrono::steady_clock::now());
    if (left.empty() || millis <= 0) return left;
    // Waits until a process exits. If no process is left, no other resource will be released.
    const std::vector<pid_t> processes = OtherProcesses(hosts_[host].init->pid());
    if (processes.empty()) return LeftNow(host);
    pollfd end = {static_cast<int>(syscall(SYS_pidfd_open, processes[0], 0)), POLLIN, 0};
    if (end.fd >= 0) poll(&end, 1, static_cast<int>(millis));
    close(end.fd);
  }
}

std::vector<std::string> Hosts::LeftNow(int host) const {
  constexpr char kListen[] = "0A";
  const pid_t init = hosts_[host].init->pid();
  std::vector<std::string> left;
  for (const pid_t pid : OtherProcesses(init)) {
    left.push_back(name(host) + ": process " + std::to_string(pid) + " (" + Comm(pid) + ")");
  }
  for (const char* table : {"net/tcp", "net/tcp6"}) {
    for (const std::string& line : Lines(ReadAll(Proc(init, table)))) {
      const std::vector<std::string> fields = Fields(line);
      if (fields.size() > 3 && fields[3] == kListen) left.push_back(name(host) + ": port " + fields[1]);
    }
  }
  for (const std::string& line : Lines(ReadAll(Proc(init, "net/unix")))) {
    const std::vector<std::string> fields = Fields(line);
    if (fields.back().starts_with("@")) left.push_back(name(host) + ": abstract socket " + fields.back());
  }
  for (const auto& entry : std::filesystem::directory_iterator(Proc(init, "root/dev/shm"))) {
    left.push_back(name(host) + ": file /dev/shm/" + entry.path().filename().string());
  }
  return left;
}

std::vector<pid_t> Hosts::Find(int host, const std::string& name) const {
  std::vector<pid_t> found;
  for (const pid_t pid : OtherProcesses(hosts_[host].init->pid())) {
    if (Comm(pid) == name) found.push_back(pid);
  }
  return found;
}

}  // namespace ddprun

// Simulated hosts for tests: each has a separate network, host name, mounts and processes. They share the
// test's files, the clocks and the processors. A bridge in a separate network namespace connects them, so
// they reach only one another, and tests that run in parallel do not interfere.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/fault/testing/process.h"

namespace ddprun {

//   Threads: one caller at a time.
//   Owns:    the hosts and all processes on them. They end when the destructor returns or the test process
//            dies for any reason.
class Hosts {
 public:
  // Why this machine cannot have hosts; empty: it can. Requires root (also of a user namespace), iproute2 and
  // iptables.
  static std::string WhyNot();

  // Creates `n` hosts called node0, node1, ..., which resolve each other's names.
  explicit Hosts(int n);
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  std::string name(int host) const;
  std::string address(int host) const;
  // Directory for the host's logs and temporary files; visible to all hosts under this path.
  std::string directory(int host) const;

  // Starts a program on a host. TMPDIR is directory(host).
  std::unique_ptr<Process> Start(int host, const std::vector<std::string>& argv, const Environment& more = {},
                                 Stdio stdio = Stdio::kPipes) const;
  // Runs a program on a host; it must exit with 0.
  void Run(int host, const std::vector<std::string>& argv) const;

  // Unplugs and replugs the host's cable. Open connections are kept.
  void Cut(int host);
  void Heal(int host);
  // Drops packets from `from` to `host`; the other direction works.
  void Deafen(int host, int from);
  void Undeafen(int host, int from);
  // Limits the rate at which `host` sends.
  void Slow(int host, int kbit_per_second);
  void Unslow(int host);
  // Drops the fraction `share` of the packets that `host` receives.
  void Lossy(int host, double share);
  void Unlossy(int host);
  // Resets the connections between `host` and `other` on both sides, as a middlebox does. Both may reconnect.
  void ResetConnections(int host, int other);
  // Number of packets that Deafen and Lossy have dropped on `host`.
  int64_t Dropped(int host) const;
  // The name server of `host` does not answer, and /etc/hosts contains only the host's own name.
  void LoseNames(int host);
  // `host` resolves its own name to 127.0.1.1, as Debian's installer leaves it.
  void CallItselfLoopback(int host);
  // `host` resolves `name` to `address`, and no other name.
  void Name(int host, const std::string& address, const std::string& name);
  // Makes a second network between all hosts, on interfaces called eth1.
  void AddNetwork();
  std::string SecondAddress(int host) const;

  // Kills all processes of the host. No process can be started on it afterwards. Reset: the kernel closes the
  // connections, as in a reboot, so peers detect it. PowerOff: peers receive nothing.
  void Reset(int host);
  void PowerOff(int host);

  // Waits until nothing is left on a host besides the test's programs: live processes, listening ports,
  // abstract unix sockets, files in /dev/shm. Returns what is left, one line each; empty on success.
  std::vector<std::string> Left(int host, Duration timeout = seconds(10)) const;

  // Live processes on `host` with the kernel name `name`, oldest first, as pids in the test's pid namespace.
  std::vector<pid_t> Find(int host, const std::string& name) const;

 private:
  struct Host {
    std::unique_ptr<Process> init;
    std::string etc;  // directory of the host's hosts and resolv.conf
    std::string directory;
  };
  void Boot(Host& host, const std::string& name, const std::string& hosts_file);
  void DropRule(int host, const std::string& change, const std::vector<std::string>& which);
  std::vector<std::string> LeftNow(int host) const;

  std::string directory_;
  Host switch_;
  std::vector<Host> hosts_;
};

}  // namespace ddprun

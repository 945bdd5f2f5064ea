// Simulated hosts for tests. Each host has a separate network, host name, mounts and processes. All hosts
// share the test's files, the clocks and the processors. A bridge in a separate network namespace connects
// the hosts, so hosts reach only one another, and tests that run in parallel do not interfere.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/fault/testing/process.h"

namespace ddprun {

//   Threads: one caller at a time.
//   Owns:    the hosts and all processes on them, which end with this object, or when the test process ends.
class Hosts {
 public:
  // Returns the reason why hosts cannot be simulated on this machine; empty if they can. Hosts require root
  // (of a user namespace at least), iproute2 and iptables.
  static std::string WhyNot();

  // Creates `n` hosts called node0, node1, ... Each host resolves the names of all hosts.
  explicit Hosts(int n);
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  std::string name(int host) const;
  std::string address(int host) const;
  // Directory for the host's logs and temporary files. It has the same path on all hosts.
  std::string directory(int host) const;

  // Starts a program on a host, with TMPDIR set to directory(host).
  std::unique_ptr<Process> Start(int host, const std::vector<std::string>& argv, const Environment& more = {},
                                 Stdio stdio = Stdio::kPipes) const;
  // Runs a program on a host. Aborts unless the program exits with 0 within 20 s.
  void Run(int host, const std::vector<std::string>& argv) const;

  // Cut unplugs the host's cable, and Heal plugs it in again. Open connections are kept.
  void Cut(int host);
  void Heal(int host);
  // DropPackets drops the packets from `from` to `host` until PassPackets. It does not affect the other
  // direction.
  void DropPackets(int host, int from);
  void PassPackets(int host, int from);
  // Limits the rate at which `host` sends, until Unslow.
  void Slow(int host, int kbit_per_second);
  void Unslow(int host);
  // Drops the fraction `share` of the packets that `host` receives, until Unlossy.
  void Lossy(int host, double share);
  void Unlossy(int host);
  // Resets the connections between `host` and `other` on both sides, like a middlebox. Both hosts may
  // reconnect.
  void ResetConnections(int host, int other);
  // Number of packets that DropPackets and Lossy have dropped on `host`.
  int64_t Dropped(int host) const;
  // From now on the name server of `host` does not answer, and `host` resolves only its own name and
  // localhost.
  void LoseNames(int host);
  // From now on `host` resolves its own name to 127.0.1.1, the default of Debian's installer.
  void ResolveOwnNameToLoopback(int host);
  // From now on `host` resolves `name` to `address`, and resolves no other name except localhost.
  void Name(int host, const std::string& address, const std::string& name);
  // Connects all hosts with a second network, on interfaces called eth1.
  void AddNetwork();
  std::string SecondAddress(int host) const;

  // Both kill all processes of the host, and no process can be started on the host afterwards. After Reset
  // the kernel closes the host's connections, as in a reboot, so peers detect the end. After PowerOff, peers
  // receive nothing.
  void Reset(int host);
  void PowerOff(int host);

  // Waits until a host has no live process except its init, no listening port, no abstract unix socket and
  // no file in /dev/shm. Returns what is left at the timeout, one line per item; empty if nothing is left.
  std::vector<std::string> Left(int host, Duration timeout = seconds(10)) const;

  // Live processes on `host` with the kernel name `name`, oldest first, as pids in the test's pid namespace.
  std::vector<pid_t> Find(int host, const std::string& name) const;

 private:
  struct Host {
    std::unique_ptr<Process> init;
    std::string etc;  // directory with the files that are /etc/hosts and /etc/resolv.conf on the host
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

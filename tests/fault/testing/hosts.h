// Hosts for tests: each has a network, a name, mounts and processes of its own, as on a machine of its own.
// They share the files of the test, the clocks and the processors. A bridge in a network namespace of its own
// joins them: they reach one another and nothing else, and tests that run at once do not meet.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/fault/testing/process.h"

namespace ddprun {

//   Threads: one caller at a time.
//   Owns:    its hosts and all that runs on them; all is gone when the destructor returns, or when the test
//            has died, of whatever.
class Hosts {
 public:
  // Why this machine cannot have hosts; empty: it can. Needs root (of a user namespace at least), iproute2
  // and iptables.
  static std::string WhyNot();

  // `n` hosts called node0, node1, ..., that know each other's names.
  explicit Hosts(int n);
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  std::string name(int host) const;
  std::string address(int host) const;
  // For its logs and temporary files; all hosts see it under this path.
  std::string directory(int host) const;

  // Starts a program on a host. TMPDIR is directory(host).
  std::unique_ptr<Process> Start(int host, const std::vector<std::string>& argv, const Environment& more = {},
                                 Stdio stdio = Stdio::kPipes) const;
  // Runs a program on a host to its end, which must be a good one.
  void Run(int host, const std::vector<std::string>& argv) const;

  // The host's cable, pulled out and put back. Connections stay as they are.
  void Cut(int host);
  void Heal(int host);
  // `host` hears nothing from `from`, which hears all that `host` says.
  void Deafen(int host, int from);
  void Undeafen(int host, int from);
  // What `host` sends takes its time.
  void Slow(int host, int kbit_per_second);
  void Unslow(int host);
  // Of what `host` receives, that share is lost.
  void Lossy(int host, double share);
  void Unlossy(int host);
  // The connections between `host` and `other` are reset on both sides, as by something between them; both
  // may connect again.
  void ResetConnections(int host, int other);
  // Packets that Deafen and Lossy have dropped on `host`.
  int64_t Dropped(int host) const;
  // The name server of `host` does not answer, and the names in /etc/hosts are gone; it knows its own.
  void LoseNames(int host);
  // `host` resolves its own name to 127.0.1.1, as Debian's installer leaves it.
  void CallItselfLoopback(int host);
  // `host` resolves `name` to `address`, and no other name.
  void Name(int host, const std::string& address, const std::string& name);
  // Makes a second network between all hosts, on interfaces called eth1.
  void AddNetwork();
  std::string SecondAddress(int host) const;

  // All processes of the host end at once. Reset: the kernel closes their connections, as when a host
  // reboots; the others see that. PowerOff: nobody is told. Nothing can be started there any more.
  void Reset(int host);
  void PowerOff(int host);

  // What is there of a host besides the test's programs: live processes, listening ports, abstract unix
  // sockets, files in /dev/shm; waits for that to be nothing. One line each: nothing is what a test wants.
  std::vector<std::string> Left(int host, Duration timeout = seconds(10)) const;

  // As the test sees it: of the live processes on `host` called `name` in the kernel, by age.
  std::vector<pid_t> Find(int host, const std::string& name) const;

 private:
  struct Host {
    std::unique_ptr<Process> init;
    std::string etc;  // its /etc/hosts and /etc/resolv.conf
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

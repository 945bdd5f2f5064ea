// A real etcd for tests, on this machine or on a simulated host.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/fault/testing/hosts.h"
#include "tests/fault/testing/process.h"

namespace ddprun {

// One member of an etcd cluster, by default the only one, with a directory of its own. It ends with this object.
//   Threads: one caller at a time.
class EtcdServer {
 public:
  // Returns the reason why there is no etcd on this machine; empty if there is one.
  static std::string WhyNot();

  // On 127.0.0.1, on free ports. Aborts unless it is healthy within 20 s.
  EtcdServer();
  // The member on the simulated host `host` of a cluster with one member on each of the hosts `members`, on the usual ports. The
  // cluster serves clients when most of its members are started.
  EtcdServer(const Hosts& hosts, int host, const std::vector<int>& members);
  // Waits until it serves clients. Aborts unless it does within 20 s.
  void AwaitHealthy();
  // Whether it leads its cluster.
  bool Leads() const;

  // HOST:PORT for clients.
  const std::string& endpoint() const { return endpoint_; }
  pid_t pid() const { return process_->pid(); }
  void Stop() { process_->Signal(SIGSTOP); }
  void Continue() { process_->Signal(SIGCONT); }
  // Ends it, and starts it again with its data.
  void Kill();
  void StartAgain();

 private:
  void Start();
  void Launch();
  bool IsHealthy() const;
  // False: it has exited, or is not healthy at `end`.
  bool BecomesHealthy(TimePoint end) const;
  [[noreturn]] void Fail() const;
  std::unique_ptr<Process> Run(const std::vector<std::string>& argv) const;

  const Hosts* const hosts_ = nullptr;  // null: on this machine
  const int host_ = 0;
  const std::string directory_;
  const std::string name_ = "e";
  std::string endpoint_, peer_endpoint_;
  std::string cluster_;  // --initial-cluster
  std::unique_ptr<Process> process_;
};

}  // namespace ddprun

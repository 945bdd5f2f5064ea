#include "tests/fault/testing/etcd.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>

#include "tests/fault/testing/job.h"

namespace ddprun {
namespace {

constexpr char kServer[] = "/usr/bin/etcd", kClient[] = "/usr/bin/etcdctl";
constexpr char kPeerPort[] = ":2380";
constexpr Duration kStartLimit = seconds(20);

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::abort();
}

// A port of 127.0.0.1 that is free now, below the range from which the kernel takes ports of connections and of servers that leave the
// choice to it. Another process may still take it before etcd does; see Start.
std::string FreePort() {
  int low = 0;
  if (!(std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> low))
    Die("cannot read the range of ports");
  std::random_device random;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const int port = std::uniform_int_distribution(low / 2, low - 1)(random);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool is_free = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    close(fd);
    if (is_free) return std::to_string(port);
  }
  Die("cannot find a free port");
}

}  // namespace

std::string EtcdServer::WhyNot() {
  for (const char* program : {kServer, kClient}) {
    if (access(program, X_OK) != 0) {
      return std::string(program) + " is missing: `tools/dev setup --etcd` installs it";
    }
  }
  return "";
}

EtcdServer::EtcdServer() : directory_(MakeTestDirectory()) { Start(); }

EtcdServer::EtcdServer(const Hosts& hosts, int host, const std::vector<int>& members)
    : hosts_(&hosts), host_(host), directory_(MakeTestDirectory()), name_(hosts.name(host)) {
  endpoint_ = hosts.address(host) + ":2379";
  peer_endpoint_ = hosts.address(host) + kPeerPort;
  for (const int member : members) {
    cluster_ +=
        (cluster_.empty() ? "" : ",") + hosts.name(member) + "=http://" + hosts.address(member) + kPeerPort;
  }
  Launch();
}

std::unique_ptr<Process> EtcdServer::Run(const std::vector<std::string>& argv) const {
  if (hosts_ != nullptr) return hosts_->Start(host_, argv);
  return std::make_unique<Process>(argv);
}

bool EtcdServer::IsHealthy() const {
  const auto client =
      Run({kClient, "--endpoints=" + endpoint_, "--command-timeout=1s", "endpoint", "health"});
  return client->Wait() == ProcessEnd{.code = 0};
}

bool EtcdServer::Leads() const {
  if (process_->Wait(Duration::zero())) return false;
  const auto client = Run({kClient, "--endpoints=" + endpoint_, "--command-timeout=5s", "--write-out=fields",
                           "endpoint", "status"});
  client->Wait();
  const auto field = [&](const std::string& name) {
    const std::string before = "\"" + name + "\" : ";
    const size_t at = client->out().find(before);
    if (at == std::string::npos) return std::string();
    const size_t begin = at + before.size();
    return client->out().substr(begin, client->out().find('\n', begin) - begin);
  };
  return !field("MemberID").empty() && field("MemberID") == field("Leader");
}

void EtcdServer::Launch() {
  const std::string client = "http://" + endpoint_, peer = "http://" + peer_endpoint_;
  process_ =
      Run({kServer, "--name=" + name_, "--data-dir=" + directory_ + "/data", "--listen-client-urls=" + client,
           "--advertise-client-urls=" + client, "--listen-peer-urls=" + peer,
           "--initial-advertise-peer-urls=" + peer, "--initial-cluster=" + cluster_, "--log-level=error"});
}

bool EtcdServer::BecomesHealthy(TimePoint end) const {
  while (std::chrono::steady_clock::now() < end && !process_->Wait(Duration::zero())) {
    if (IsHealthy()) return true;
  }
  return false;
}

void EtcdServer::Fail() const {
  std::fprintf(stderr, "etcd at %s did not become healthy within 20 s:\n%s\n", endpoint_.c_str(),
               process_->err().c_str());
  std::abort();
}

void EtcdServer::AwaitHealthy() {
  if (!BecomesHealthy(std::chrono::steady_clock::now() + kStartLimit)) Fail();
}

void EtcdServer::Start() {
  const TimePoint end = std::chrono::steady_clock::now() + kStartLimit;
  const bool new_ports = endpoint_.empty();
  do {
    if (new_ports) {
      endpoint_ = "127.0.0.1:" + FreePort();
      peer_endpoint_ = "127.0.0.1:" + FreePort();
      cluster_ = name_ + "=http://" + peer_endpoint_;
    }
    Launch();
    // It exits if another process has taken a port.
    if (BecomesHealthy(end)) return;
  } while (std::chrono::steady_clock::now() < end);
  Fail();
}

void EtcdServer::Kill() {
  process_->Signal(SIGKILL);
  process_->Wait();
}

void EtcdServer::StartAgain() { Start(); }

}  // namespace ddprun

// A load generator for c10d servers. It has one thread, sends precomputed requests, and counts the bytes of
// the answers without parsing them.
//
//   store_load PORT add|get|rawget CONNECTIONS SECONDS
//     prints: operations per second, and the p50 and p99 latency of an operation in microseconds
//   store_load PORT join CONNECTIONS
//     prints: seconds until all clients are connected and counted, seconds until all are released
//   store_load PORT idle CONNECTIONS
//     connects all clients, waits until the server has counted them, prints "ready", and keeps the
//     connections until its standard input ends
//
// In `add`, `get` and `rawget`, each connection has its own key and one request in flight.
//   `add`:    ADD.
//   `get`:    WAIT and then GET, as PyTorch's client does. Both requests count as one operation.
//   `rawget`: GET alone.
//   `join`:   the first requests of PyTorch's clients (VALIDATE and PING, ADD to init/), then WAIT on a key
//             that is set when all clients have been counted.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "proto/c10d_wire.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

// Limit on concurrent connection attempts, so that no server's backlog overflows.
constexpr int kMaxConnecting = 512;
constexpr int kEvents = 256;
// The program fails if no answer arrives within this time, which is longer than any measurement.
constexpr int kSilenceMs = 30'000;
constexpr char kValue[] = "16 bytes of text";

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "store_load: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

std::string Bytes(const c10d::Request& request) {
  std::string out;
  c10d::AppendRequest(request, c10d::Dialect::kVersioned, &out);
  return out;
}

// A request and the size of its answer.
struct Step {
  std::string request;
  size_t reply_bytes;
};

struct Connection {
  int fd = -1;
  std::vector<Step> steps;
  size_t step = 0;
  size_t got = 0;  // bytes of the current step's answer
  Clock::time_point begun;
};

class Load {
 public:
  Load(int port, int connections) : port_(port), connections_(connections) {
    if (epoll_ < 0) Die("epoll_create1");
  }

  void Measure(const std::string& what, double seconds) {
    const bool raw = what == "rawget";
    for (size_t i = 0; i < connections_.size(); ++i) {
      const std::string key = "/key_of_" + std::to_string(1000 + i);
      std::vector<Step>& steps = connections_[i].steps;
      if (what == "add") {
        steps = {{Bytes(c10d::Add{key, 1}), 8}};
      } else {
        const absl::string_view keys[] = {key};
        if (!raw) steps.push_back({Bytes(c10d::Wait{keys}), 1});
        steps.push_back({Bytes(c10d::Get{key}), 8 + std::strlen(kValue)});
      }
    }
    for (size_t i = 0; i < connections_.size(); ++i) {
      Connect(connections_[i]);
      std::string first;
      c10d::AppendValidate(&first);
      if (what != "add") {
        c10d::AppendRequest(c10d::Set{"/key_of_" + std::to_string(1000 + i), kValue},
                            c10d::Dialect::kVersioned, &first);
      }
      c10d::AppendRequest(c10d::Ping{7}, c10d::Dialect::kVersioned, &first);
      Exchange(connections_[i], first, 4);
    }
    std::vector<uint32_t> took_ns;
    took_ns.reserve(static_cast<size_t>(400'000 * seconds));
    const Clock::time_point begin = Clock::now();
    // Operations that begin in the first 200 ms are not counted, so that caches and CPU frequency can settle.
    const Clock::time_point counted_from = begin + std::chrono::milliseconds(200);
    const Clock::time_point end =
        counted_from + std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
    for (Connection& c : connections_) {
      c.begun = begin;
      Send(c);
    }
    Clock::time_point now = begin;
    while (now < end) {
      ForEachEvent([&](Connection& c) {
        const bool over = Advance(c);
        if (c.got > 0) return;
        if (over) {
          now = Clock::now();
          if (c.begun >= counted_from) {
            took_ns.push_back(static_cast<uint32_t>((now - c.begun).count()));
          }
          c.begun = now;
        }
        Send(c);
      });
    }
    if (took_ns.empty()) Die("no operation completed in time");
    const double measured = std::chrono::duration<double>(now - counted_from).count();
    std::sort(took_ns.begin(), took_ns.end());
    std::printf("%.0f %.1f %.1f\n", static_cast<double>(took_ns.size()) / measured,
                took_ns[took_ns.size() / 2] / 1e3, took_ns[took_ns.size() * 99 / 100] / 1e3);
  }

  void Join() {
    const Clock::time_point begin = Clock::now();
    ConnectAll();
    const Clock::time_point counted = Clock::now();
    Connection setter;
    Connect(setter);
    std::string set;
    c10d::AppendValidate(&set);
    c10d::AppendRequest(c10d::Set{"/go", kValue}, c10d::Dialect::kVersioned, &set);
    c10d::AppendRequest(c10d::Ping{7}, c10d::Dialect::kVersioned, &set);
    setter.steps = {{set, 4}};
    Send(setter);
    for (size_t over = 0; over < connections_.size() + 1;) {
      ForEachEvent([&](Connection& c) { over += Advance(c) ? 1 : 0; });
    }
    const Clock::time_point released = Clock::now();
    std::printf("%.4f %.4f\n", std::chrono::duration<double>(counted - begin).count(),
                std::chrono::duration<double>(released - counted).count());
  }

  void Idle() {
    ConnectAll();
    std::printf("ready\n");
    std::fflush(stdout);
    char end;
    while (::read(STDIN_FILENO, &end, 1) > 0) {
    }
  }

 private:
  // Connects all clients. Returns when the server has counted all of them and each has sent its WAIT.
  void ConnectAll() {
    std::string hello;
    c10d::AppendValidate(&hello);
    c10d::AppendRequest(c10d::Ping{7}, c10d::Dialect::kVersioned, &hello);
    const absl::string_view go[] = {"/go"};
    const std::vector<Step> steps = {
        {hello, 4}, {Bytes(c10d::Add{"init/", 1}), 8}, {Bytes(c10d::Wait{go}), 1}};
    size_t begun = 0, counted = 0;
    int connecting = 0;
    while (counted < connections_.size()) {
      for (; connecting < kMaxConnecting && begun < connections_.size(); ++connecting, ++begun) {
        Connection& c = connections_[begun];
        c.steps = steps;
        Connect(c);
        Send(c);
      }
      ForEachEvent([&](Connection& c) {
        if (Advance(c)) Die("released too early");
        if (c.got > 0) return;
        if (c.step == 1) --connecting;
        if (c.step == 2) ++counted;
        Send(c);
      });
    }
  }

  void Connect(Connection& c) {
    c.fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c.fd < 0) Die("socket");
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port_));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // On loopback, connect() returns as soon as the kernel has queued the connection, even if the server has
    // not accepted it yet.
    if (::connect(c.fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) Die("connect");
    const int one = 1;
    ::setsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = &c;
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, c.fd, &event) != 0) Die("epoll_ctl");
  }

  void Exchange(Connection& c, const std::string& request, size_t reply_bytes) {
    if (::send(c.fd, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) {
      Die("send");
    }
    std::string reply(reply_bytes, '\0');
    if (::recv(c.fd, reply.data(), reply.size(), MSG_WAITALL) != static_cast<ssize_t>(reply_bytes)) {
      Die("the server closed the connection");
    }
  }

  void Send(const Connection& c) {
    const std::string& request = c.steps[c.step].request;
    if (::send(c.fd, request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size())) {
      Die("send");
    }
  }

  // Reads the available part of the answer. If the answer is complete, moves `c` to its next step. Returns
  // true if the answer to the last step is complete.
  bool Advance(Connection& c) {
    char reply[256];
    const ssize_t n = ::recv(c.fd, reply, sizeof reply, MSG_DONTWAIT);
    if (n <= 0) Die("the server closed the connection");
    c.got += static_cast<size_t>(n);
    if (c.got > c.steps[c.step].reply_bytes) Die("an answer is longer than expected");
    if (c.got < c.steps[c.step].reply_bytes) return false;
    c.got = 0;
    c.step = (c.step + 1) % c.steps.size();
    return c.step == 0;
  }

  template <typename F>
  void ForEachEvent(F f) {
    epoll_event events[kEvents];
    const int n = ::epoll_wait(epoll_, events, kEvents, kSilenceMs);
    if (n == 0) Die("no answer from the server for 30 s");
    for (int i = 0; i < n; ++i) f(*static_cast<Connection*>(events[i].data.ptr));
  }

  const int port_;
  const int epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  std::vector<Connection> connections_;
};

int Main(int argc, char** argv) {
  const std::string what = argc >= 4 ? argv[2] : "";
  const bool measures = what == "add" || what == "get" || what == "rawget";
  const int port = argc >= 4 ? std::atoi(argv[1]) : 0;
  const int connections = argc >= 4 ? std::atoi(argv[3]) : 0;
  const double seconds = argc == 5 ? std::atof(argv[4]) : 0;
  if (port <= 0 || connections <= 0 ||
      (measures ? seconds <= 0 : argc != 4 || (what != "join" && what != "idle"))) {
    std::fprintf(stderr,
                 "usage: store_load PORT add|get|rawget CONNECTIONS SECONDS | PORT join|idle CONNECTIONS\n");
    return 2;
  }
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  Load load(port, connections);
  if (what == "join") {
    load.Join();
  } else if (what == "idle") {
    load.Idle();
  } else {
    load.Measure(what, seconds);
  }
  return 0;
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) { return ddprun::Main(argc, argv); }

// A stand-in for NCCL's RAS: speaks its protocol, and answers as NCCL 2.28 does.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "os/descriptor.h"

namespace ddprun {

struct RasProcess {
  std::string host;
  pid_t pid = 0;
  uint64_t all_reduces = 0, broadcasts = 0;
};

inline std::string RasCommunicator(const std::vector<RasProcess>& processes) {
  std::string ranks;
  for (const RasProcess& p : processes) {
    absl::StrAppend(
        &ranks, ranks.empty() ? "" : ",\n", R"({"rank": 0, "host": ")", p.host, R"(", "pid": )", p.pid,
        R"(, "cuda_dev": 0, "nvml_dev": 0, "status": {"init_state": 0, "abort_flag": false}, )",
        R"("collective_counts": {"Broadcast": )", p.broadcasts, R"(, "AllReduce": )", p.all_reduces, "}}");
  }
  return absl::StrCat(R"({"hash": "0x1", "size": )", processes.size(), R"(, "ranks": [)", ranks,
                      R"(], "missing_ranks": []})");
}

inline std::string RasAnswer(const std::vector<std::string>& communicators) {
  return absl::StrCat("SERVER PROTOCOL 2\nOK\nOK\n{\"nccl_version\": \"2.28.9\",\n\"communicators\": [",
                      absl::StrJoin(communicators, ",\n"), "],\n\"ras\": {\"timeouts_count\": 0}}\n");
}

// Listens on a free port.
class RasServer {
 public:
  // `answer` is called for each connection, in the server's thread. nullopt: the peer gets no answer.
  explicit RasServer(std::function<std::optional<std::string>(int connection)> answer)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), answer_(std::move(answer)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_.get(), 8), 0);
    EXPECT_EQ(getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    address_ = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
    thread_ = std::thread([this] { Serve(); });
  }
  ~RasServer() {
    shutdown(fd_.get(), SHUT_RDWR);
    thread_.join();
  }
  RasServer(const RasServer&) = delete;
  RasServer& operator=(const RasServer&) = delete;

  // For NCCL_RAS_ADDR.
  const std::string& address() const { return address_; }
  // Of the last connection that was answered.
  std::string last_question() {
    const std::lock_guard lock(mu_);
    return question_;
  }

 private:
  void Serve() {
    for (int connection = 0;; ++connection) {
      const UniqueFd peer(accept(fd_.get(), nullptr, nullptr));
      if (!peer) return;
      std::string question;
      char part[256];
      while (question.find("STATUS\n") == std::string::npos) {
        const ssize_t n = recv(peer.get(), part, sizeof(part), 0);
        if (n <= 0) break;
        question.append(part, static_cast<size_t>(n));
      }
      const std::optional<std::string> answer = answer_(connection);
      {
        const std::lock_guard lock(mu_);
        question_ = question;
      }
      if (answer) {
        (void)send(peer.get(), answer->data(), answer->size(), MSG_NOSIGNAL);
      } else {
        (void)recv(peer.get(), part, 1, 0);  // until the peer closes the connection
      }
    }
  }

  const UniqueFd fd_;
  const std::function<std::optional<std::string>(int)> answer_;
  std::string address_;
  std::mutex mu_;
  std::string question_;
  std::thread thread_;
};

}  // namespace ddprun

#include "worker_sdk/comm/host/hostile_peer.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "worker_sdk/comm/host/handshake.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

// Of the open connections, so that descriptors remain for the rank.
constexpr size_t kMaxConnections = 300;

std::string Bytes(const Greeting& greeting) {
  return std::string(reinterpret_cast<const char*>(&greeting), sizeof(greeting));
}

std::vector<std::string> TextsFor(const HostCommunicatorOptions& options) {
  std::vector<std::string> texts = {"",
                                    "D",
                                    "GET / HTTP/1.1\r\n\r\n",
                                    std::string(100000, '\xff'),
                                    "DDPCOMM1" + std::string(20, '\0'),
                                    "DDPCOMM1" + std::string(48, '\0')};
  const int rank = static_cast<int>(options.rank.value());
  const auto add = [&](auto change) {
    for (uint32_t kind = 1; kind < 7; ++kind) {
      // To a hub's unix socket, each one is wrong in one way; to a TCP socket also in its token.
      Greeting greeting{.kind = LinkKind(kind),
                        .from = rank + 1,
                        .to = rank,
                        .round = options.round.value(),
                        .run_id_hash = HashRunId(options.run_id)};
      change(greeting);
      texts.push_back(Bytes(greeting));
    }
  };
  add([](Greeting& g) { g.magic = 0x304d4d4f43504444; });  // "DDPCOMM0"
  add([](Greeting& g) { ++g.round; });
  add([](Greeting& g) { --g.round; });
  add([](Greeting& g) { ++g.run_id_hash; });
  add([](Greeting& g) { ++g.to; });
  add([](Greeting& g) { g.from = -1; });
  add([](Greeting& g) { g.from = g.to; });
  add([](Greeting& g) { g.from = 1 << 30; });
  add([](Greeting& g) {
    if (g.kind == LinkKind::kLocal) g.kind = LinkKind::kLane;  // kLocal would be right
  });
  return texts;
}

std::set<std::string> OwnInodes() {
  std::set<std::string> inodes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed_meanwhile;
    std::string target = std::filesystem::read_symlink(entry, closed_meanwhile);
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  return inodes;
}

// The words of each line of a table in /proc/net.
std::vector<std::vector<std::string>> Table(const char* path) {
  std::vector<std::vector<std::string>> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string>& words = lines.emplace_back();
    for (std::string& word : StrSplit(line, ' ')) {
      if (!word.empty()) words.push_back(std::move(word));
    }
  }
  return lines;
}

void Signal(const UniqueFd& event) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(event.get(), &one, sizeof(one));
}

}  // namespace

HostilePeer::HostilePeer(const HostCommunicatorOptions& options)
    : texts_(TextsFor(options)),
      stop_(eventfd(0, EFD_CLOEXEC)),
      first_(eventfd(0, EFD_CLOEXEC)),
      thread_([this] { Run(); }) {}

HostilePeer::~HostilePeer() { Stop(); }

void HostilePeer::AwaitFirst() {
  pollfd p{.fd = first_.get(), .events = POLLIN, .revents = 0};
  poll(&p, 1, 60'000);
}

void HostilePeer::Stop() {
  if (thread_.joinable()) {
    Signal(stop_);
    thread_.join();
  }
  while (!connections_.empty()) CloseFirst();
}

void HostilePeer::CloseFirst() {
  char byte;
  was_answered_ |= recv(connections_.front().get(), &byte, 1, MSG_DONTWAIT) > 0;
  connections_.pop_front();
}

void HostilePeer::Run() {
  std::set<std::string> attacked;  // inodes
  pollfd stop{.fd = stop_.get(), .events = POLLIN, .revents = 0};
  while (poll(&stop, 1, 1) == 0) {
    const std::set<std::string> own = OwnInodes();
    // sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode; st 0A: listens
    for (const auto& words : Table("/proc/net/tcp")) {
      if (words.size() < 10 || words[3] != "0A" || !own.contains(words[9])) continue;
      if (!attacked.insert(words[9]).second) continue;
      AttackTcp(std::stoi(words[1].substr(words[1].find(':') + 1), nullptr, 16));
    }
    // Num RefCount Protocol Flags Type St Inode Path; flag 10000: listens
    for (const auto& words : Table("/proc/net/unix")) {
      if (words.size() < 8 || words[3] != "00010000" || !own.contains(words[6])) continue;
      if (words[7].starts_with("@ddprun-comm-") && attacked.insert(words[6]).second)
        AttackUnix(words[7].substr(1));
    }
    if (!attacked.empty()) Signal(first_);
  }
}

void HostilePeer::AttackTcp(int port) {
  const sockaddr_in to{.sin_family = AF_INET,
                       .sin_port = htons(static_cast<uint16_t>(port)),
                       .sin_addr = {htonl(INADDR_LOOPBACK)},
                       .sin_zero = {}};
  Attack(reinterpret_cast<const sockaddr*>(&to), sizeof(to));
}

void HostilePeer::AttackUnix(const std::string& name) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path + 1, name.data(), std::min(name.size(), sizeof(to.sun_path) - 1));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  Attack(reinterpret_cast<const sockaddr*>(&to), size);
}

void HostilePeer::Attack(const sockaddr* address, socklen_t size) {
  const bool is_unix = address->sa_family == AF_UNIX;
  for (const std::string& text : texts_) {
    UniqueFd fd(socket(address->sa_family, (is_unix ? SOCK_SEQPACKET : SOCK_STREAM) | SOCK_CLOEXEC, 0));
    if (connect(fd.get(), address, size) != 0) return;  // closed meanwhile
    send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    connections_.push_back(std::move(fd));
    ++num_connections_;
    if (connections_.size() > kMaxConnections) CloseFirst();
  }
}

}  // namespace ddprun

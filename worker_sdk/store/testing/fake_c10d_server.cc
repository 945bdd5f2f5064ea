#include "worker_sdk/store/testing/fake_c10d_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <cstdint>
#include <utility>

#include "base/check.h"

namespace ddprun {
namespace {

bool Read(int fd, void* data, size_t size) {
  return size == 0 || recv(fd, data, size, MSG_WAITALL) == static_cast<ssize_t>(size);
}

bool ReadString(int fd, std::string* text) {
  uint64_t size = 0;
  if (!Read(fd, &size, sizeof size) || size > 1 << 20) return false;
  text->resize(size);
  return Read(fd, text->data(), size);
}

void Write(int fd, const std::string& bytes) { send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL); }

template <typename T>
std::string BytesOf(T number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

}  // namespace

FakeC10dServer::FakeC10dServer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof address;
  DDPRUN_CHECK(bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0, "bind");
  DDPRUN_CHECK(listen(listener_.get(), 8) == 0, "listen");
  DDPRUN_CHECK(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0, "port");
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] {
    while (true) {
      const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      ++connections_;
      const std::lock_guard<std::mutex> lock(mu_);
      open_.insert(fd);
      threads_.emplace_back([this, fd] { Serve(fd); });
    }
  });
}

FakeC10dServer::~FakeC10dServer() {
  shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  Hangup();
  for (std::thread& thread : threads_) thread.join();
}

void FakeC10dServer::Hangup() {
  const std::lock_guard<std::mutex> lock(mu_);
  for (const int fd : open_) shutdown(fd, SHUT_RDWR);
}

std::string FakeC10dServer::ValueOf(const std::string& key) {
  const std::lock_guard<std::mutex> lock(mu_);
  return values_[key];
}

void FakeC10dServer::Serve(int fd) {
  const UniqueFd connection(fd);
  while (Request(fd)) {
  }
  const std::lock_guard<std::mutex> lock(mu_);
  open_.erase(fd);
  waiting_.erase(fd);
}

bool FakeC10dServer::Request(int fd) {
  char op = 0;
  if (!Read(fd, &op, 1)) return false;
  std::string key, value;
  uint32_t number = 0;
  uint64_t count = 0;
  switch (op) {
    case 0:  // VALIDATE
      return Read(fd, &number, sizeof number) && number == 0x3C85F7CE;
    case 13:  // PING
      if (!Read(fd, &number, sizeof number)) return false;
      Write(fd, echo.empty() ? BytesOf(number) : echo);
      return true;
    case 1:  // SET
      if (!ReadString(fd, &key) || !ReadString(fd, &value)) return false;
      Set(key, value);
      return true;
    case 3:  // GET
      if (!ReadString(fd, &key)) return false;
      value = ValueOf(key);
      Write(fd, BytesOf(uint64_t{value.size()}) + value);
      return true;
    case 6:  // WAIT
      if (!Read(fd, &count, sizeof count) || count != 1 || !ReadString(fd, &key)) return false;
      Wait(fd, key);
      return true;
    case 12: {  // CANCEL_WAIT
      const std::lock_guard<std::mutex> lock(mu_);
      waiting_.erase(fd);
      Write(fd, std::string(1, '\1'));
      return true;
    }
    default:
      return false;
  }
}

void FakeC10dServer::Set(const std::string& key, const std::string& value) {
  const std::lock_guard<std::mutex> lock(mu_);
  values_[key] = value;
  for (const auto& [fd, awaited] : std::exchange(waiting_, {})) {
    if (awaited == key) {
      Write(fd, std::string(1, '\0'));
    } else {
      waiting_[fd] = awaited;
    }
  }
}

void FakeC10dServer::Wait(int fd, const std::string& key) {
  const std::lock_guard<std::mutex> lock(mu_);
  if (!wait_reply.empty()) {
    Write(fd, wait_reply);
  } else if (values_.count(key) != 0) {
    Write(fd, std::string(1, '\0'));
  } else {
    waiting_[fd] = key;
    if (waits != nullptr) waits->Set();
  }
}

}  // namespace ddprun

// Tests that memory stays bounded and that other clients are served while peers begin large messages on many
// streams and never complete them.

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/wake_timer.h"
#include "gtest/gtest.h"
#include "net/port_listener.h"
#include "net/testing/io_thread.h"
#include "proto/store.grpc.pb.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/core/store_hub.h"
#include "rendezvous/grpc/grpc_port.h"

namespace ddprun {
namespace {

constexpr PartialMessageLimits kLimits = {.one = 32 << 20, .all = 64 << 20};
constexpr uint32_t kMessageBytes = 1 << 30;  // over gRPC's limit, which applies only to complete messages
constexpr int kStreams = 100;
constexpr Duration kLong = seconds(60);

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// An HTTP/2 client that begins large messages on many streams. Sends at most `max_bytes` of their contents.
// Respects flow control, because gRPC disconnects peers that do not.
class GreedyPeer {
 public:
  GreedyPeer(int port, int64_t max_bytes)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), left_(max_bytes) {
    sockaddr_in address{.sin_family = AF_INET,
                        .sin_port = htons(static_cast<uint16_t>(port)),
                        .sin_addr = {htonl(INADDR_LOOPBACK)},
                        .sin_zero = {}};
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ::fcntl(fd_, F_SETFL, O_NONBLOCK);
    out_ = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    AddFrame(kSettings, 0, 0, "");
    for (int i = 0; i < kStreams; ++i) Begin();
  }
  ~GreedyPeer() { ::close(fd_); }
  GreedyPeer(const GreedyPeer&) = delete;
  GreedyPeer& operator=(const GreedyPeer&) = delete;

  // Reads the available input, then sends as much as flow control allows. Returns false if the connection was
  // closed.
  bool Step() {
    char bytes[64 << 10];
    ssize_t n;
    while ((n = ::recv(fd_, bytes, sizeof bytes, 0)) > 0) in_.append(bytes, static_cast<size_t>(n));
    if (n == 0 || errno != EAGAIN) return false;
    while (TakeFrame()) {
    }
    for (auto& [id, window] : windows_) AddData(id, window);
    n = ::send(fd_, out_.data(), out_.size(), MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN;
    out_.erase(0, static_cast<size_t>(n));
    return true;
  }

 private:
  enum Type : uint8_t { kData = 0, kHeaders = 1, kSettings = 4, kPing = 6, kWindowUpdate = 8 };
  static constexpr uint8_t kAck = 1, kEndHeaders = 4;
  static constexpr size_t kMaxFrame = 16 << 10, kMaxOut = 1 << 20;
  static std::string Number(uint32_t n, int num_bytes) {
    std::string bytes;
    for (int shift = 8 * (num_bytes - 1); shift >= 0; shift -= 8)
      bytes.push_back(static_cast<char>(n >> shift));
    return bytes;
  }
  uint32_t NumberAt(size_t at, size_t num_bytes) const {
    uint32_t n = 0;
    for (size_t i = 0; i < num_bytes; ++i) n = n << 8 | static_cast<uint8_t>(in_[at + i]);
    return n;
  }
  void AddFrame(Type type, uint8_t flags, uint32_t stream, absl::string_view body) {
    absl::StrAppend(&out_, Number(static_cast<uint32_t>(body.size()), 3),
                    std::string(1, static_cast<char>(type)), std::string(1, static_cast<char>(flags)),
                    Number(stream, 4), body);
  }
  void Begin() {
    std::string headers;
    for (const auto& [name, value] : std::initializer_list<std::pair<absl::string_view, absl::string_view>>{
             {":method", "POST"},
             {":scheme", "http"},
             {":path", "/ddprun.proto.Store/Set"},
             {":authority", "store"},
             {"te", "trailers"},
             {"content-type", "application/grpc"}}) {
      // Literal header fields without Huffman coding.
      absl::StrAppend(&headers, Number(0, 1), Number(static_cast<uint32_t>(name.size()), 1), name,
                      Number(static_cast<uint32_t>(value.size()), 1), value);
    }
    AddFrame(kHeaders, kEndHeaders, next_, headers);
    AddFrame(kData, 0, next_, absl::StrCat(Number(0, 1), Number(kMessageBytes, 4)));
    window_ -= 5;
    windows_[next_] = initial_window_ - 5;
    next_ += 2;
  }
  void AddData(uint32_t id, int64_t& window) {
    while (out_.size() < kMaxOut) {
      const int64_t size = std::min<int64_t>({left_, window_, window, kMaxFrame});
      if (size <= 0) return;
      AddFrame(kData, 0, id, std::string(static_cast<size_t>(size), 'x'));
      left_ -= size;
      window_ -= size;
      window -= size;
    }
  }
  bool TakeFrame() {
    constexpr size_t kHead = 9;
    if (in_.size() < kHead) return false;
    const size_t size = NumberAt(0, 3);
    if (in_.size() < kHead + size) return false;
    const bool acknowledges = (in_[4] & kAck) != 0;
    const uint32_t id = NumberAt(5, 4);
    const auto stream = windows_.find(id);
    switch (in_[3]) {
      case kSettings:
        if (acknowledges) break;
        for (size_t at = kHead; at < kHead + size; at += 6) {
          if (NumberAt(at, 2) != 4) continue;
          const int64_t initial = NumberAt(at + 2, 4);
          for (auto& [other, window] : windows_) window += initial - initial_window_;
          initial_window_ = initial;
        }
        AddFrame(kSettings, kAck, 0, "");
        break;
      case kPing:
        if (!acknowledges) AddFrame(kPing, kAck, 0, absl::string_view(in_).substr(kHead, size));
        break;
      case kWindowUpdate:
        if (id == 0) window_ += NumberAt(kHead, 4);
        if (stream != windows_.end()) stream->second += NumberAt(kHead, 4);
        break;
    }
    in_.erase(0, kHead + size);
    return true;
  }

  const int fd_;
  std::string out_, in_;
  std::map<uint32_t, int64_t> windows_;  // flow-control windows, keyed by stream id
  uint32_t next_ = 1;
  int64_t window_ = 65'535, initial_window_ = 65'535;
  int64_t left_;
};

class GrpcMemoryTest : public testing::Test {
 protected:
  struct Server {
    Server(boost::asio::io_context& io, const std::string& address, PartialMessageLimiter::OnError on_error)
        : coordinator(std::make_unique<AsioWakeTimer>(io),
                      [](absl::string_view, absl::string_view, absl::string_view) {}),
          port(io, &coordinator, std::move(on_error), kLimits) {
      port.ServeStore(&hub);
      PortHandlers handlers;
      handlers.grpc = [this](int fd) { port.Adopt(fd); };
      handlers.c10d = [](int fd) { ::close(fd); };
      listener = PortListener::Open(io, address, 0, std::move(handlers)).value();
    }
    StoreHub hub;
    Coordinator coordinator;
    GrpcPort port;
    std::unique_ptr<PortListener> listener;
  };

  ~GrpcMemoryTest() override {
    thread_.Run([this] { server_.reset(); });
  }
  void Open(const std::string& address) {
    port_ = thread_.Run([&] {
      server_.reset();
      errors_.clear();
      server_ = std::make_unique<Server>(
          thread_.io(), address,
          [this](const std::string&, const absl::Status& why) { errors_.push_back(why); });
      return server_->listener->port();
    });
  }
  std::unique_ptr<proto::Store::Stub> Connect(const std::string& host) {
    grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return proto::Store::NewStub(
        grpc::CreateCustomChannel(absl::StrCat(host, ":", port_), grpc::InsecureChannelCredentials(), own));
  }
  static grpc::Status Set(proto::Store::Stub& stub, size_t bytes) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kLong);
    proto::SetRequest request;
    request.set_key("k");
    request.set_value(std::string(bytes, 'v'));
    proto::SetReply reply;
    return stub.Set(&context, request, &reply);
  }
  // Steps all peers until at least one is disconnected, for at most kLong. Removes the disconnected peers and
  // returns their number.
  static int StepUntilHungUp(std::vector<std::unique_ptr<GreedyPeer>>& peers) {
    const auto deadline = std::chrono::steady_clock::now() + kLong;
    while (std::chrono::steady_clock::now() < deadline) {
      const auto num_removed = std::erase_if(peers, [](const auto& peer) { return !peer->Step(); });
      if (num_removed > 0) return static_cast<int>(num_removed);
    }
    return 0;
  }
  std::vector<absl::Status> Errors() {
    return thread_.Run([this] { return errors_; });
  }

  IoThread thread_;
  std::unique_ptr<Server> server_;
  int port_ = 0;
  std::vector<absl::Status> errors_;  // used on thread_ only
};

TEST_F(GrpcMemoryTest, IncompleteMessagesOnAConnectionAreLimited) {
  constexpr int kPeers = 25;
  constexpr int64_t kEach = kLimits.one + (8 << 20);
  Open("127.0.0.1");
  const auto honest = Connect("127.0.0.1");
  const int64_t before = ResidentBytes();
  for (int i = 0; i < kPeers; ++i) {
    std::vector<std::unique_ptr<GreedyPeer>> greedy;
    greedy.push_back(std::make_unique<GreedyPeer>(port_, kEach));
    ASSERT_EQ(StepUntilHungUp(greedy), 1) << "peer " << i;
    const grpc::Status served = Set(*honest, 1000);
    ASSERT_TRUE(served.ok()) << served.error_message();
  }
  // The bound holds because malloc reuses freed memory. AddressSanitizer does not reuse it.
#ifndef __SANITIZE_ADDRESS__
  EXPECT_LT(ResidentBytes() - before, kPeers * kEach / 3);
#else
  (void)before;
#endif
  const std::vector<absl::Status> errors = Errors();
  ASSERT_EQ(errors.size(), kPeers);
  EXPECT_EQ(errors[0].code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(errors[0].message().find("the limit for a connection is 33554432"), absl::string_view::npos)
      << errors[0];
}

TEST_F(GrpcMemoryTest, IncompleteMessagesOnAllConnectionsAreLimited) {
  Open("127.0.0.1");
  const auto honest = Connect("127.0.0.1");
  std::vector<std::unique_ptr<GreedyPeer>> greedy;
  for (int i = 0; i < 4; ++i) greedy.push_back(std::make_unique<GreedyPeer>(port_, int64_t{24} << 20));
  // The limit leaves room for two greedy peers.
  while (greedy.size() > 2) ASSERT_GT(StepUntilHungUp(greedy), 0);
  EXPECT_TRUE(Set(*honest, 8 << 20).ok());
  const std::vector<absl::Status> errors = Errors();
  ASSERT_EQ(errors.size(), 2);
  EXPECT_NE(errors[0].message().find("the limit for all connections is 67108864"), absl::string_view::npos)
      << errors[0];
}

// The client sends many times the limit over one connection, in complete messages.
TEST_F(GrpcMemoryTest, CompleteMessagesAreNotLimited) {
  struct Case {
    const char* listens;
    const char* host;
  };
  std::vector<Case> cases = {{"127.0.0.1", "ipv4:127.0.0.1"}, {"", "ipv4:127.0.0.1"}};
  // IPv6 may be unavailable on the host.
  if (const int probe = ::socket(AF_INET6, SOCK_STREAM, 0); probe >= 0) {
    ::close(probe);
    cases.push_back({"", "ipv6:[::1]"});
  }
  for (const Case& c : cases) {
    SCOPED_TRACE(absl::StrCat(c.host, " at \"", c.listens, "\""));
    Open(c.listens);
    const auto honest = Connect(c.host);
    for (int i = 0; i < 30; ++i) {
      const grpc::Status set = Set(*honest, 4 << 20);
      ASSERT_TRUE(set.ok()) << set.error_message();
    }
    // The disconnection of a greedy peer shows that the limiter has checked all connections in the meantime.
    std::vector<std::unique_ptr<GreedyPeer>> greedy;
    greedy.push_back(std::make_unique<GreedyPeer>(port_, kLimits.one + (8 << 20)));
    ASSERT_EQ(StepUntilHungUp(greedy), 1);
    EXPECT_EQ(Errors().size(), 1);
    EXPECT_TRUE(Set(*honest, 1).ok());
  }
}

}  // namespace
}  // namespace ddprun

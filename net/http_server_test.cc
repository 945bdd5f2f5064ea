#include "net/http_server.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "net/port_listener.h"
#include "net/testing/io_thread.h"
#include "net/testing/raw_peer.h"

namespace ddprun {
namespace {

using End = RawPeer::End;

class HttpSessionTest : public testing::Test {
 protected:
  ~HttpSessionTest() override {
    thread_.Run([this] { listener_.reset(); });
  }

  void Open(HttpLimits limits = {}) {
    handler_ = [this](const HttpTarget& target) -> HttpReply {
      paths_.emplace_back(target.path);
      queries_.emplace_back(target.query);
      if (target.path == "/status") return {.content_type = "application/json", .body = "{\"round\": 7}\n"};
      return {.status = 404, .body = "no such page\n"};
    };
    thread_.Run([&] {
      PortHandlers handlers;
      handlers.c10d = [this, limits](int fd) {
        boost::asio::ip::tcp::socket socket(thread_.io(), boost::asio::ip::tcp::v4(), fd);
        ServeHttp(std::move(socket), handler_, limits);
      };
      auto listener = PortListener::Open(thread_.io(), "127.0.0.1", 0, std::move(handlers));
      ASSERT_TRUE(listener.ok()) << listener.status();
      listener_ = *std::move(listener);
    });
  }
  std::string Ask(absl::string_view request, End end = End::kFin) {
    RawPeer peer(listener_->port());
    EXPECT_TRUE(peer.Send(request));
    std::string reply;
    EXPECT_EQ(peer.ReceiveToEnd(&reply), end) << request;
    return reply;
  }
  static std::string Status(const std::string& reply) { return reply.substr(0, reply.find('\r')); }
  static std::string Body(const std::string& reply) {
    const size_t end = reply.find("\r\n\r\n");
    return end == std::string::npos ? "no body" : reply.substr(end + 4);
  }

  IoThread thread_;
  HttpHandler handler_;
  std::vector<std::string> paths_;
  std::vector<std::string> queries_;
  std::unique_ptr<PortListener> listener_;
};

TEST_F(HttpSessionTest, RepliesToGet) {
  Open();
  const std::string reply = Ask("GET /status HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(Status(reply), "HTTP/1.1 200 OK");
  EXPECT_TRUE(absl::StrContains(reply, "Content-Type: application/json\r\n")) << reply;
  EXPECT_TRUE(absl::StrContains(reply, "Content-Length: 13\r\n")) << reply;
  EXPECT_TRUE(absl::StrContains(reply, "Connection: close\r\n")) << reply;
  EXPECT_EQ(Body(reply), "{\"round\": 7}\n");
}

TEST_F(HttpSessionTest, HeadHasNoBody) {
  Open();
  const std::string reply = Ask("HEAD /status HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(Status(reply), "HTTP/1.1 200 OK");
  EXPECT_TRUE(absl::StrContains(reply, "Content-Length: 13\r\n")) << reply;
  EXPECT_EQ(Body(reply), "");
}

TEST_F(HttpSessionTest, PathExcludesTheQuery) {
  Open();
  EXPECT_EQ(Status(Ask("GET /status?verbose=1 HTTP/1.0\r\n\r\n")), "HTTP/1.1 200 OK");
  EXPECT_EQ(Status(Ask("GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n")), "HTTP/1.1 404 Not Found");
  EXPECT_EQ(thread_.Run([this] { return paths_; }), (std::vector<std::string>{"/status", "/nothing"}));
}

TEST_F(HttpSessionTest, AcceptsARequestInPieces) {
  Open();
  RawPeer peer(listener_->port());
  for (const char c : absl::string_view("GET /status HTTP/1.1\r\nHost: x\r\n\r\n"))
    ASSERT_TRUE(peer.Send({&c, 1}));
  std::string reply;
  EXPECT_EQ(peer.ReceiveToEnd(&reply), End::kFin);
  EXPECT_EQ(Body(reply), "{\"round\": 7}\n");
}

TEST_F(HttpSessionTest, RejectsBadRequests) {
  Open();
  const struct {
    std::string request;
    const char* status;
  } kTable[] = {
      {"POST /status HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"},
      {"DELETE / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"},
      {"GARBAGE\r\n\r\n", "HTTP/1.1 400 Bad Request"},
      {"GET / HTTP/9.9\r\n\r\n", "HTTP/1.1 400 Bad Request"},
      {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 413 Payload Too Large"},
      {absl::StrCat("GET / HTTP/1.1\r\nX: ", std::string(9000, 'x'), "\r\n\r\n"),
       "HTTP/1.1 431 Request Header Fields Too Large"},
  };
  for (const auto& row : kTable) EXPECT_EQ(Status(Ask(row.request)), row.status) << row.request.substr(0, 40);
  EXPECT_TRUE(thread_.Run([this] { return paths_.empty(); }));
}

TEST_F(HttpSessionTest, SendsNoReplyToAnIncompleteRequest) {
  Open();
  RawPeer peer(listener_->port());
  ASSERT_TRUE(peer.Send("GET /sta"));
  peer.Shutdown();
  std::string reply;
  EXPECT_EQ(peer.ReceiveToEnd(&reply), End::kFin);
  EXPECT_EQ(reply, "");
}

TEST_F(HttpSessionTest, ClosesAConnectionThatMissesTheRequestDeadline) {
  Open({.request_deadline = milliseconds(1)});
  EXPECT_EQ(Ask("GET /sta"), "");
}

TEST_F(HttpSessionTest, SplitsTargetIntoPathAndQuery) {
  Open();
  Ask("GET /status?a=1&b=2 HTTP/1.1\r\n\r\n");
  Ask("GET /status? HTTP/1.1\r\n\r\n");
  Ask("GET /status HTTP/1.1\r\n\r\n");
  EXPECT_EQ(thread_.Run([this] { return queries_; }), (std::vector<std::string>{"a=1&b=2", "", ""}));
  EXPECT_EQ(thread_.Run([this] { return paths_; }),
            (std::vector<std::string>{"/status", "/status", "/status"}));
}

TEST(QueryValueTest, FindsAndDecodesTheValue) {
  EXPECT_EQ(QueryValue("job=a%2Fb+c&after=7", "job"), "a/b c");
  EXPECT_EQ(QueryValue("job=a%2Fb+c&after=7", "after"), "7");
  EXPECT_EQ(QueryValue("job=a=b", "job"), "a=b");
  EXPECT_EQ(QueryValue("job", "job"), "");
  EXPECT_EQ(QueryValue("", "job"), "");
  EXPECT_EQ(QueryValue("job=%zz%4", "job"), "%zz%4");
}

}  // namespace
}  // namespace ddprun

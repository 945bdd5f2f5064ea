// Tests that garbage sent to the ports of a running job does not affect the job.

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <functional>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "net/testing/raw_peer.h"
#include "tests/fault/testing/job.h"
#include "tests/fault/testing/process.h"

namespace ddprun {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const std::string kSettings("\0\0\0\4\0\0\0\0\0", 9);  // an empty SETTINGS frame
constexpr unsigned kSeed = 20;

std::string RandomBytes(std::mt19937& random, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

std::string HttpGet(int port, const std::string& path) {
  RawPeer peer(port);
  peer.Send("GET " + path + " HTTP/1.1\r\nHost: job\r\n\r\n");
  std::string answer;
  peer.ReceiveToEnd(&answer);
  return answer;
}

// Sends the bytes and expects that the server closes the connection.
void ExpectHungUp(int port, const std::string& bytes) {
  RawPeer peer(port);
  peer.Send(bytes);
  std::string answer;
  EXPECT_NE(peer.ReceiveToEnd(&answer), RawPeer::End::kStillOpen);
}

// Connections that stay open until the test ends.
using Kept = std::vector<RawPeer>;

void Keep(Kept& kept, int port, const std::string& bytes) {
  kept.emplace_back(port);
  EXPECT_TRUE(kept.back().Send(bytes));
}

// Starts the streaming call `method`, sends `payload` as its first message, and returns the final status.
grpc::Status SendPayload(int port, const std::string& method, const std::string& payload) {
  const auto channel =
      grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials());
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, method, &queue);
  const auto done = [&queue] {
    void* tag;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  grpc::Slice slice(payload);
  const grpc::ByteBuffer message(&slice, 1);
  grpc::Status status;
  call->StartCall(nullptr);
  if (done()) {
    call->Write(message, nullptr);
    done();
    call->WritesDone(nullptr);
    done();
  }
  grpc::ByteBuffer answer;
  do {
    call->Read(&answer, nullptr);
  } while (done());
  call->Finish(&status, nullptr);
  done();
  queue.Shutdown();
  done();
  return status;
}

struct Garbage {
  std::string name;
  bool to_store;  // also sent to the worker store, whose only protocol is c10d TCP
  std::function<void(int port, Kept& kept)> send;
};

void PrintTo(const Garbage& garbage, std::ostream* out) { *out << garbage.name; }

const std::vector<Garbage>& AllGarbage() {
  static const auto& all = *new std::vector<Garbage>{
      {"RandomBytes", true,
       [](int port, Kept&) {
         std::mt19937 random(kSeed);
         for (int first = 0; first < 256; ++first) {
           RawPeer(port).Send(std::string(1, static_cast<char>(first)) + RandomBytes(random, 200));
         }
       }},
      {"RandomBytesOnOpenConnections", true,
       [](int port, Kept& kept) {
         std::mt19937 random(kSeed + 1);
         for (int i = 0; i < 32; ++i) Keep(kept, port, RandomBytes(random, 1 + random() % 20));
       }},
      {"Silence", true,
       [](int port, Kept& kept) {
         for (int i = 0; i < 200; ++i) Keep(kept, port, "");
       }},
      {"HalfAPreface", false,
       [](int port, Kept& kept) {
         Keep(kept, port, "P");
         Keep(kept, port, "PRI * HTTP/2.0\r\n");
         RawPeer(port).Send("PRI * HT");
         ExpectHungUp(port, "PRI * HTTP/3.0\r\n\r\nSM\r\n\r\n");
       }},
      {"GarbageFrames", false,
       [](int port, Kept&) {
         std::mt19937 random(kSeed + 2);
         for (int i = 0; i < 8; ++i) ExpectHungUp(port, kPreface + kSettings + RandomBytes(random, 4096));
         // The header of a frame of 16 MB.
         ExpectHungUp(port, kPreface + kSettings + std::string("\xff\xff\xff\0\0\0\0\0\1", 9));
       }},
      {"TlsHandshake", false,
       [](int port, Kept& kept) {
         ExpectHungUp(
             port, std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(600, 'x'));
         Keep(kept, port, "\x16\x03\x01");
       }},
      {"GarbagePayload", false,
       [](int port, Kept&) {
         const std::string attend = "/ddprun.proto.Coordinator/Attend";
         EXPECT_NE(SendPayload(port, attend, std::string(100, '\xff')).error_code(),
                   grpc::StatusCode::DEADLINE_EXCEEDED);
         EXPECT_NE(SendPayload(port, attend, "").error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
         EXPECT_EQ(SendPayload(port, attend, std::string(2 << 20, 'x')).error_code(),
                   grpc::StatusCode::RESOURCE_EXHAUSTED);
         EXPECT_EQ(SendPayload(port, "/ddprun.proto.Coordinator/Destroy", "x").error_code(),
                   grpc::StatusCode::UNIMPLEMENTED);
       }},
      {"TruncatedStoreRequests", true,
       [](int port, Kept& kept) {
         const std::string hello = Hex("00 ce f7 85 3c");              // VALIDATE
         const std::string set = hello + Hex("01 05 .. 2f 6b 65 79");  // SET, half a key
         const std::string huge = Hex("ff ff ff ff ff ff ff 7f");      // 8 EB
         for (size_t size = 1; size <= set.size(); ++size) RawPeer(port).Send(set.substr(0, size));
         Keep(kept, port, set);
         ExpectHungUp(port, hello + Hex("01") + huge);       // SET
         ExpectHungUp(port, hello + Hex("05") + huge);       // CHECK
         ExpectHungUp(port, hello + Hex("00 00 00 00 00"));  // VALIDATE with a wrong magic number
         ExpectHungUp(port, hello + Hex("ff"));              // unknown request
       }},
      {"LargeHttpRequest", false,
       [](int port, Kept& kept) {
         RawPeer peer(port);
         peer.Send("GET /" + std::string(1 << 20, 'a'));
         EXPECT_THAT(peer.Receive(12), AnyOf(StartsWith("HTTP/1.1 4"), testing::IsEmpty()));
         Keep(kept, port, "GET /healthz HTTP/1.1\r\nHo");
         EXPECT_THAT(HttpGet(port, "/nothing"), StartsWith("HTTP/1.1 404 "));
       }},
  };
  return all;
}

class GarbageTest : public testing::TestWithParam<Garbage> {};

TEST_P(GarbageTest, TheJobContinues) {
  Gate gate;
  const Args program = {WorkerPath(), gate.flag()};
  const auto first = StartAgent({"--nnodes=1:2", "--local-addr=127.0.0.1"}, program);
  const std::vector<std::string> line = first->AwaitErr("other nodes join with: ");
  ASSERT_THAT(line, SizeIs(1)) << first->err();
  const Args place = RendezvousOptions(line[0]);
  const auto second = StartAgent(place, program);
  std::vector<std::string> ready = second->AwaitOut("ready ");
  ASSERT_THAT(ready, SizeIs(1)) << second->err();
  int coordinator_port = 0;
  for (const std::string& option : place) {
    if (option.starts_with("--rdzv-endpoint=")) coordinator_port = PortOf(option);
  }
  // Round 0 if the second agent came before the last call of the first one, otherwise round 1.
  const std::string before = HttpGet(coordinator_port, "/status");
  const size_t at = before.find("\"round\":");
  ASSERT_NE(at, std::string::npos) << before;
  const std::string round = before.substr(at, before.find(',', at) - at);

  Kept kept;
  std::vector<int> ports = {coordinator_port};
  if (GetParam().to_store) ports.push_back(PortOf(TextField(ready[0], "master")));
  for (const int port : ports) {
    GetParam().send(port, kept);
    EXPECT_THAT(HttpGet(coordinator_port, "/healthz"), HasSubstr("\"service\":\"ddprun\""));
  }
  const std::string status = HttpGet(coordinator_port, "/status");
  EXPECT_THAT(status, HasSubstr("\"state\":\"running\","));
  EXPECT_THAT(status, HasSubstr(round + ",\"restarts\":0,"));
  gate.Open();
  EXPECT_EQ(second->Wait(), ProcessEnd{.code = 0}) << second->err();
  EXPECT_EQ(first->Wait(), ProcessEnd{.code = 0}) << first->err();
  // Checks that no worker was restarted.
  EXPECT_THAT(second->AwaitOut("ready "), SizeIs(0));
}

INSTANTIATE_TEST_SUITE_P(All, GarbageTest, testing::ValuesIn(AllGarbage()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ddprun

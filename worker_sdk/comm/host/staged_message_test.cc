// Tests messages whose payload passes through a window, with a thread for each of two ranks, on one node and on two.
#include "worker_sdk/comm/host/staged_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ddprun/status.h"
#include "worker_sdk/comm/host/host_group.h"
#include "worker_sdk/comm/testing/file_store.h"
#include "worker_sdk/core/deadline.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {
namespace {

using internal::Call;
using internal::OpKind;
using ::testing::HasSubstr;

constexpr size_t kLarge = 3'000'001;

std::vector<char> Payload(size_t n, int seed) {
  std::vector<char> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<char>(i * 31 + i / 251 + seed);
  return bytes;
}

Call CallOf(OpKind kind, int peer, size_t num_bytes) {
  return {.kind = kind, .dtype = DType::kUInt8, .root = peer, .num_bytes = num_bytes};
}

// Copies between a payload and its window on a thread, as a device does.
class Copier {
 public:
  Copier(std::shared_ptr<StagedMessage> message, std::vector<char>& payload, size_t window, bool sends)
      : message_(std::move(message)),
        window_(window),
        thread_([this, &payload, sends] { sends ? CopyIn(payload) : CopyOut(payload); }) {}
  ~Copier() { thread_.join(); }
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

 private:
  void CopyIn(const std::vector<char>& payload) {
    for (size_t copied = 0; copied < payload.size() && !message_->Done();) {
      const size_t at = copied % window_.size();
      const size_t n = std::min(
          {message_->num_moved() + window_.size() - copied, payload.size() - copied, window_.size() - at});
      if (n > 0) std::memcpy(&window_[at], &payload[copied], n);
      copied += n;
      message_->SetReady(window_, copied);
    }
  }
  void CopyOut(std::vector<char>& payload) {
    for (size_t copied = 0; copied < payload.size();) {
      message_->SetReady(window_, std::min(copied + window_.size(), payload.size()));
      const bool done = message_->Done();
      const size_t at = copied % window_.size();
      const size_t n = std::min(message_->num_moved() - copied, window_.size() - at);
      if (n == 0 && done && !message_->Wait(TimePoint()).ok()) return;
      if (n > 0) std::memcpy(&payload[copied], &window_[at], n);
      copied += n;
    }
  }

  const std::shared_ptr<StagedMessage> message_;
  std::vector<char> window_;
  std::thread thread_;
};

class StagedMessageTest : public testing::TestWithParam<int> {
 protected:
  static void WithTwoRanks(const std::function<void(HostGroupInterface&, int peer)>& body) {
    std::string dir = testing::TempDir() + "/store.XXXXXX";
    ASSERT_NE(mkdtemp(dir.data()), nullptr);
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        FakeFileStore store(dir);
        const int num_nodes = GetParam();
        auto group = CreateHostGroup({.rank = Rank(r),
                                      .world_size = 2,
                                      .local_rank = LocalRank(num_nodes == 1 ? r : 0),
                                      .local_world_size = 2 / num_nodes,
                                      .group_rank = GroupRank(num_nodes == 1 ? 0 : r),
                                      .group_world_size = num_nodes,
                                      .round = Round(7)},
                                     &store);
        ASSERT_TRUE(group.ok()) << group.status();
        body(**group, 1 - r);
      });
    }
    for (std::thread& t : threads) t.join();
    std::filesystem::remove_all(dir);
  }
};

INSTANTIATE_TEST_SUITE_P(Nodes, StagedMessageTest, testing::Values(1, 2));

// One byte, less and more than the window, more than the ring between two ranks, and nothing.
TEST_P(StagedMessageTest, TheEndsMayHaveDifferentWindowsOrNone) {
  WithTwoRanks([](HostGroupInterface& group, int peer) {
    for (const size_t n : {size_t{1}, size_t{999}, size_t{1000}, size_t{1001}, kLarge, size_t{0}}) {
      for (const bool sender_stages : {true, false}) {
        for (const bool receiver_stages : {true, false}) {
          SCOPED_TRACE(StrCat(n, " bytes, staged: ", sender_stages, ", ", receiver_stages));
          const bool sends = group.rank() == 0;
          std::vector<char> bytes = Payload(n, sends ? 1 : 2);
          const Call call = CallOf(sends ? OpKind::kSend : OpKind::kReceive, peer, n);
          if (sends ? sender_stages : receiver_stages) {
            const auto message = group.StartStaged(call);
            EXPECT_THAT(message->name(), HasSubstr(" from rank 0 to rank 1"));
            const Copier copier(message, bytes, sends ? 1000 : 70'000, sends);
            EXPECT_EQ(message->Wait(DeadlineAfter(seconds(60))), OkStatus());
            EXPECT_EQ(message->num_moved(), n);
          } else {
            const auto message = group.Start(call, bytes.data(), bytes.data());
            EXPECT_EQ(message->Wait(DeadlineAfter(seconds(60))), OkStatus());
          }
          EXPECT_TRUE(bytes == Payload(n, 1));
        }
      }
    }
  });
}

// The helper thread moves them: no caller waits until they have finished.
TEST_P(StagedMessageTest, AMessageThatIsNotReadyIsNotOvertaken) {
  WithTwoRanks([](HostGroupInterface& group, int peer) {
    std::vector<char> first = Payload(1000, group.rank()), second = Payload(1000, group.rank() + 10);
    if (group.rank() == 0) {
      const auto staged = group.StartStaged(CallOf(OpKind::kSend, peer, 1000));
      const auto later = group.Start(CallOf(OpKind::kSend, peer, 1000), second.data(), nullptr);
      EXPECT_FALSE(later->Done());
      const Copier copier(staged, first, 100, /*sends=*/true);
      while (!later->Done()) std::this_thread::yield();
      EXPECT_TRUE(staged->Done());
      EXPECT_EQ(later->Wait(TimePoint()), OkStatus());
    } else {
      EXPECT_EQ(group.Start(CallOf(OpKind::kReceive, peer, 1000), nullptr, first.data())
                    ->Wait(DeadlineAfter(seconds(60))),
                OkStatus());
      EXPECT_EQ(group.Start(CallOf(OpKind::kReceive, peer, 1000), nullptr, second.data())
                    ->Wait(DeadlineAfter(seconds(60))),
                OkStatus());
      EXPECT_TRUE(first == Payload(1000, 0));
      EXPECT_TRUE(second == Payload(1000, 10));
    }
  });
}

TEST_P(StagedMessageTest, DifferentSizesAreFoundBeforeThePayloadIsReady) {
  WithTwoRanks([](HostGroupInterface& group, int peer) {
    const bool sends = group.rank() == 0;
    const auto message =
        group.StartStaged(CallOf(sends ? OpKind::kSend : OpKind::kReceive, peer, sends ? 1000 : 999));
    const Status status = message->Wait(DeadlineAfter(seconds(60)));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(
        status.message(),
        HasSubstr("message 0 from rank 0 to rank 1 is send of 1000 uint8 on rank 0, receive of 999 uint8"));
    std::vector<char> window(10);
    message->SetReady(window, 10);  // too late
    EXPECT_EQ(message->num_moved(), 0);
  });
}

// Both ranks wait for the payload of rank 0.
TEST_P(StagedMessageTest, TheDeadlineOfASenderNamesThePayloadThatIsNotReady) {
  WithTwoRanks([](HostGroupInterface& group, int peer) {
    std::vector<char> bytes(10);
    if (group.rank() == 0) {
      const auto first = group.StartStaged(CallOf(OpKind::kSend, peer, 10));
      const auto second = group.Start(CallOf(OpKind::kSend, peer, 10), bytes.data(), nullptr);
      const Status status = second->Wait(DeadlineAfter(milliseconds(50)));
      EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
      EXPECT_EQ(
          status.message(),
          "rank 0 of round 7 gave up operation 1 (message 1 from rank 0 to rank 1), waiting for the work in "
          "the stream before message 0 from rank 0 to rank 1");
      EXPECT_EQ(first->Wait(TimePoint()), status);
    } else {
      EXPECT_EQ(
          group.StartStaged(CallOf(OpKind::kReceive, peer, 10))->Wait(DeadlineAfter(seconds(60))).code(),
          StatusCode::kDeadlineExceeded);
    }
  });
}

TEST_P(StagedMessageTest, GiveUpOfAnotherThreadEndsTheMessage) {
  WithTwoRanks([](HostGroupInterface& group, int peer) {
    const auto message = group.StartStaged(CallOf(OpKind::kReceive, peer, 10));
    std::vector<char> window(10);
    message->SetReady(window, 10);
    if (group.rank() == 0) std::thread([&] { message->GiveUp(); }).join();
    const Status status = message->Wait(DeadlineAfter(seconds(60)));
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_THAT(status.message(), HasSubstr("rank 0 of round 7 gave up operation 0 (message 0 from rank 1 to "
                                            "rank 0), waiting for rank 1"));
    message->GiveUp();  // does nothing
    EXPECT_EQ(group.status(), status);
  });
}

// The Send is complete when the rank leaves. The receiver has room for the rest of the payload only later.
TEST_P(StagedMessageTest, WhatARankHasSentBeforeItLeftArrives) {
  WithTwoRanks([](HostGroupInterface& group, int peer) {
    constexpr size_t kSize = 100'000;  // fits the ring and the socket
    std::vector<char> bytes = Payload(kSize, 5);
    if (group.rank() == 1) {
      EXPECT_EQ(group.Start(CallOf(OpKind::kReceive, peer, 1), nullptr, bytes.data())
                    ->Wait(DeadlineAfter(seconds(60))),
                OkStatus());
      bytes = Payload(kSize, 5);
      const auto message = group.StartStaged(CallOf(OpKind::kSend, peer, kSize));
      const Copier copier(message, bytes, 1000, /*sends=*/true);
      EXPECT_EQ(message->Wait(DeadlineAfter(seconds(60))), OkStatus());
      return;  // leaves
    }
    EXPECT_EQ(
        group.Start(CallOf(OpKind::kSend, peer, 1), bytes.data(), nullptr)->Wait(DeadlineAfter(seconds(60))),
        OkStatus());
    const auto message = group.StartStaged(CallOf(OpKind::kReceive, peer, kSize));
    while (group.LeftStatus().ok()) std::this_thread::yield();
    bytes.assign(kSize, 0);
    {
      const Copier copier(message, bytes, 1000, /*sends=*/false);
      EXPECT_EQ(message->Wait(DeadlineAfter(seconds(60))), OkStatus());
    }
    EXPECT_TRUE(bytes == Payload(kSize, 5));
    const auto never = group.StartStaged(CallOf(OpKind::kReceive, peer, 1));
    std::vector<char> window(1);
    never->SetReady(window, 1);
    EXPECT_EQ(never->Wait(DeadlineAfter(seconds(60))).message(), "rank 1 of round 7 has left");
  });
}

}  // namespace
}  // namespace ddprun

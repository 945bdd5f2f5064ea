#include "rendezvous/coordinator/stack_requests.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using testing::HasSubstr;

void AddThread(proto::WorkerStacks& worker, const std::string& name, bool main, const std::string& stack) {
  proto::WorkerStacks::Thread& thread = *worker.add_threads();
  thread.set_name(name);
  thread.set_main(main);
  thread.set_stack(stack);
}

proto::WorkerStacks& AddWorker(proto::Stacks& answer, int local_rank, const std::string& stack) {
  proto::WorkerStacks& worker = *answer.add_workers();
  worker.set_local_rank(local_rank);
  AddThread(worker, "MainThread", true, stack);
  return worker;
}

constexpr char kWaits[] = "all_reduce (c10d.py:9)\n<module> (train.py:12)";

TEST(StacksTextTest, EqualStacksAreShownOnceAndOddRanksFirst) {
  StackNode first{.host = "node1", .first_rank = Rank(0), .nproc = 4, .answer = proto::Stacks()};
  AddWorker(*first.answer, 0, kWaits);
  AddThread(AddWorker(*first.answer, 1, kWaits), "loader", false, "epoll_wait");
  StackNode second{.host = "node2", .first_rank = Rank(2), .nproc = 2, .answer = proto::Stacks()};
  AddWorker(*second.answer, 0, kWaits);
  AddWorker(*second.answer, 1, "read\x1b[31m (data.py:3)\nload (train.py:7)").set_paused_ms(70);
  second.answer->add_missing("no stacks of children");
  StackNode third{.host = "node3", .first_rank = Rank(4), .why_not = "no answer within 6 s"};
  EXPECT_EQ(StacksText({first, second, third}),
            "rank 3 on node2: main thread\n"
            "    read [31m (data.py:3)\n"
            "    load (train.py:7)\n"
            "ranks 0-2: main thread\n"
            "    all_reduce (c10d.py:9)\n"
            "    <module> (train.py:12)\n"
            "rank 1 on node1: thread loader\n"
            "    epoll_wait\n"
            "node3: no answer within 6 s\n"
            "node2: no stacks of children\n"
            "node2: paused rank 3 for 70 ms\n");
}

TEST(StacksTextTest, ThreadsOfAPoolAreCounted) {
  StackNode node{.host = "node1", .first_rank = Rank(0), .nproc = 4, .answer = proto::Stacks()};
  for (int rank : {0, 2}) {
    proto::WorkerStacks& worker = AddWorker(*node.answer, rank, "main");
    for (int i = 0; i < 3; ++i) AddThread(worker, "pool", false, "wait");
  }
  EXPECT_THAT(StacksText({node}), HasSubstr("ranks 0, 2: thread pool, 6 threads\n    wait\n"));
}

TEST(StacksTextTest, AnAnswerIsNotTrusted) {
  StackNode node{.host = "node1", .first_rank = Rank(4), .nproc = 2, .answer = proto::Stacks()};
  AddWorker(*node.answer, -4, "forged");
  AddWorker(*node.answer, 2, "forged");
  AddWorker(*node.answer, 0, std::string(4 << 20, 'x') + "\n" + std::string(100, 'y'));
  for (int i = 0; i < 1000; ++i) node.answer->add_missing(std::to_string(i) + std::string(5000, 'z'));
  const std::string text = StacksText({node});
  EXPECT_EQ(text.find("forged"), std::string::npos);
  EXPECT_LT(text.size(), 20'000u);
}

TEST(StacksTextTest, EqualRemarksAreMadeOnce) {
  std::vector<StackNode> nodes;
  for (int i = 0; i < 3; ++i) {
    nodes.push_back(
        {.host = "node" + std::to_string(i), .first_rank = Rank(i), .why_not = "no answer within 6 s"});
  }
  EXPECT_EQ(StacksText(nodes), "node0 and 2 more: no answer within 6 s\n");
}

TEST(StacksTextTest, ALongTextIsCut) {
  StackNode node{.host = "node1", .first_rank = Rank(0), .nproc = 1, .answer = proto::Stacks()};
  std::string stack;
  for (int i = 0; i < 1'000'000; ++i) stack += "frame\n";
  AddWorker(*node.answer, 0, stack);
  const std::string text = StacksText({node});
  EXPECT_LT(text.size(), (size_t{3} << 20) + 100);
  EXPECT_THAT(text, testing::EndsWith("\n... the stacks of all ranks are too long: ask for one rank\n"));
}

class StackRequestsTest : public testing::Test {
 protected:
  int64_t Begin() {
    return requests_.Begin(
        {{7, {.host = "node1", .first_rank = Rank(0)}}, {8, {.host = "node2", .first_rank = Rank(1)}}},
        StackRequests::kLimit,
        [this](absl::StatusOr<std::string> text) {
          EXPECT_FALSE(text_.has_value()) << "a second answer";
          text_ = std::move(text);
        },
        now_);
  }
  static proto::Stacks AnswerTo(int64_t request) {
    proto::Stacks answer;
    answer.set_request(request);
    AddWorker(answer, 0, kWaits);
    return answer;
  }

  TimePoint now_ = TimePoint(seconds(100));
  StackRequests requests_;
  std::optional<absl::StatusOr<std::string>> text_;
};

TEST_F(StackRequestsTest, AnswersWhenAllNodesHave) {
  const int64_t request = Begin();
  requests_.Came(7, AnswerTo(request));
  requests_.Came(7, AnswerTo(request));
  requests_.Came(9, AnswerTo(request));
  requests_.Came(8, AnswerTo(request + 1));
  EXPECT_FALSE(text_.has_value());
  requests_.Came(8, AnswerTo(request));
  EXPECT_THAT(text_->value(), HasSubstr("ranks 0, 1: main thread"));
  EXPECT_EQ(requests_.NextDeadline(), std::nullopt);
}

TEST_F(StackRequestsTest, SaysWhichNodesHaveNotAnswered) {
  const int64_t request = Begin();
  requests_.Came(7, AnswerTo(request));
  EXPECT_EQ(requests_.NextDeadline(), now_ + StackRequests::kLimit);
  requests_.Tick(now_ + StackRequests::kLimit - milliseconds(1));
  EXPECT_FALSE(text_.has_value());
  requests_.Tick(now_ + StackRequests::kLimit);
  EXPECT_THAT(text_->value(), HasSubstr("rank 0 on node1"));
  EXPECT_THAT(text_->value(), HasSubstr("node2: no answer within 6 s\n"));
}

TEST_F(StackRequestsTest, DoesNotWaitForANodeThatIsLost) {
  const int64_t request = Begin();
  requests_.Lost(8);
  requests_.Came(7, AnswerTo(request));
  EXPECT_THAT(text_->value(), HasSubstr("node2: no answer: its agent has disconnected\n"));
}

TEST_F(StackRequestsTest, AFewAtATime) {
  for (size_t i = 0; i < StackRequests::kMaxOpen; ++i) {
    EXPECT_FALSE(requests_.full());
    requests_.Begin(
        {{7, {}}}, StackRequests::kLimit, [](const auto&) {}, now_);
  }
  EXPECT_TRUE(requests_.full());
  EXPECT_LE(StackRequests::MaxBytes(1), StackRequests::kMaxNodeBytes);
}

TEST_F(StackRequestsTest, EndsAllWithAnError) {
  Begin();
  requests_.EndAll(absl::UnavailableError("gone"));
  EXPECT_EQ(text_->status(), absl::UnavailableError("gone"));
}

}  // namespace
}  // namespace ddprun

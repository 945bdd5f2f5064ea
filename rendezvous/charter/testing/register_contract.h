// One contract suite for all implementations of CharterRegister. A test instantiates it with
//   INSTANTIATE_TEST_SUITE_P(Name, RegisterContractTest, testing::Values(&MakeService));
// and RegisterLimitTest too, if its service can be suspended, and RegisterRemovalTest, if its records can be removed.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/time.h"
#include "boost/asio/io_context.hpp"
#include "gtest/gtest.h"
#include "rendezvous/charter/charter_register.h"
#include "rendezvous/charter/testing/register_caller.h"

namespace ddprun {

// What keeps the records of registers: an external service, or memory of the test.
class RegisterService {
 public:
  virtual ~RegisterService() = default;
  // Why the suite cannot run here; empty if it can.
  virtual std::string WhyNot() { return ""; }
  virtual std::unique_ptr<CharterRegister> Open(boost::asio::io_context& io, const std::string& run_id) = 0;
  // Removes the record of a job, as an administrator would.
  virtual void Remove(const std::string& run_id) { ADD_FAILURE() << "cannot remove " << run_id; }
  // Until Resume, the service accepts requests but does not answer.
  virtual void Suspend() {}
  virtual void Resume() {}
};

class RegisterContractTest : public testing::TestWithParam<std::function<RegisterService*()>> {
 protected:
  void SetUp() override {
    service_ = GetParam()();
    if (const std::string why = service_->WhyNot(); !why.empty()) GTEST_SKIP() << why;
  }
  // A run id that no other test has used.
  static std::string RunId(const std::string& more = "") {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    return std::string(info->test_suite_name()) + "." + info->name() + more;
  }

  RegisterCaller::Opener Opener(const std::string& run_id) {
    return [this, run_id](boost::asio::io_context& io) { return service_->Open(io, run_id); };
  }

  RegisterService* service_ = nullptr;
};
// For services that can be suspended.
class RegisterLimitTest : public RegisterContractTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RegisterLimitTest);
// For services whose records can be removed.
class RegisterRemovalTest : public RegisterContractTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RegisterRemovalTest);

inline void ExpectEqual(const RegisterRecord& got, const RegisterRecord& want) {
  EXPECT_EQ(got.version, want.version);
  EXPECT_EQ(got.exists, want.exists);
  EXPECT_EQ(got.lead, want.lead);
  EXPECT_EQ(got.charter, want.charter);
}

TEST_P(RegisterContractTest, AtFirstThereIsNoRecord) {
  RegisterCaller a(Opener(RunId()));
  const RegisterRecord record = a.MustRead();
  EXPECT_FALSE(record.exists);
  EXPECT_EQ(record.lead, "");
  EXPECT_EQ(record.charter, "");
}

TEST_P(RegisterContractTest, ASwapCreatesTheRecord) {
  RegisterCaller a(Opener(RunId()));
  RegisterCaller b(Opener(RunId()));
  const RegisterRecord nothing = a.MustRead();
  const RegisterRecord made = a.MustSwap(nothing, "l1", "c1");
  EXPECT_GT(made.version, nothing.version);
  EXPECT_TRUE(made.exists);
  EXPECT_EQ(made.lead, "l1");
  EXPECT_EQ(made.charter, "c1");
  ExpectEqual(b.MustRead(), made);
}

TEST_P(RegisterContractTest, ARecordMayBeCreatedWithoutACharter) {
  RegisterCaller a(Opener(RunId()));
  const RegisterRecord made = a.MustSwap({}, "l1");
  EXPECT_EQ(made.charter, "");
  ExpectEqual(a.MustRead(), made);
}

TEST_P(RegisterContractTest, ARefusedCreationReturnsTheRecord) {
  RegisterCaller a(Opener(RunId()));
  RegisterCaller b(Opener(RunId()));
  const RegisterRecord nothing = b.MustRead();
  const RegisterRecord made = a.MustSwap({}, "l1", "c1");
  const auto refused = b.Swap(nothing, "l2", "c2");
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_FALSE(refused->swapped);
  ExpectEqual(refused->current, made);
  ExpectEqual(a.MustRead(), made);
}

TEST_P(RegisterContractTest, ASwapNeedsTheVersionThatWasRead) {
  RegisterCaller a(Opener(RunId()));
  RegisterCaller b(Opener(RunId()));
  const RegisterRecord first = a.MustSwap({}, "l1", "c1");
  const RegisterRecord second = b.MustSwap({.version = first.version, .exists = true}, "l2", "c2");
  EXPECT_GT(second.version, first.version);
  const auto refused = a.Swap(first, "l3", "c3");
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_FALSE(refused->swapped);
  ExpectEqual(refused->current, second);
  const RegisterRecord third = a.MustSwap(refused->current, "l3", "c3");
  ExpectEqual(b.MustRead(), third);
}

TEST_P(RegisterContractTest, OfSwapsOfOneVersionOneIsCarriedOut) {
  RegisterCaller a(Opener(RunId()));
  const RegisterRecord first = a.MustSwap({}, "l1", "c1");
  const int kSwaps = 8;
  int swapped = 0, answers = 0;
  for (int i = 0; i < kSwaps; ++i)
    a.get().Swap(first, "l" + std::to_string(i), std::nullopt, seconds(20),
                 [&](absl::StatusOr<SwapResult> result) {
                   ++answers;
                   ASSERT_TRUE(result.ok()) << result.status();
                   swapped += result->swapped;
                 });
  a.io().restart();
  const TimePoint deadline = std::chrono::steady_clock::now() + seconds(30);
  while (answers < kSwaps && a.io().run_one_until(deadline) > 0) {
  }
  EXPECT_EQ(answers, kSwaps);
  EXPECT_EQ(swapped, 1);
}

TEST_P(RegisterContractTest, ASwapWithoutACharterLeavesIt) {
  RegisterCaller a(Opener(RunId()));
  RegisterCaller b(Opener(RunId()));
  RegisterRecord record = a.MustSwap({}, "l1", "c1");
  record = a.MustSwap(record, "l2");
  EXPECT_EQ(record.lead, "l2");
  EXPECT_EQ(record.charter, "c1");
  // Another process, which has not read the charter.
  record = b.MustSwap({.version = record.version, .exists = true}, "l3");
  EXPECT_EQ(record.charter, "c1");
  // A process that has read an earlier charter.
  record = a.MustSwap(record, "l4", "c2");
  record = b.MustSwap({.version = record.version, .exists = true}, "l5");
  EXPECT_EQ(record.charter, "c2");
  record = b.MustSwap(record, "l6", "");
  EXPECT_EQ(record.charter, "");
  ExpectEqual(a.MustRead(), record);
}

TEST_P(RegisterRemovalTest, VersionsIncreaseWhenTheRecordIsRemovedAndCreatedAgain) {
  RegisterCaller a(Opener(RunId()));
  const RegisterRecord first = a.MustSwap(a.MustSwap({}, "l1", "c1"), "l2");
  service_->Remove(RunId());
  const RegisterRecord nothing = a.MustRead();
  EXPECT_FALSE(nothing.exists);
  EXPECT_EQ(nothing.charter, "");
  const auto refused = a.Swap(first, "l3");
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_FALSE(refused->swapped);
  EXPECT_FALSE(refused->current.exists);
  const RegisterRecord second = a.MustSwap(nothing, "l4");
  EXPECT_GT(second.version, first.version);
  EXPECT_GT(second.version, nothing.version);
  EXPECT_EQ(second.charter, "");
  ExpectEqual(a.MustRead(), second);
}

TEST_P(RegisterContractTest, JobsDoNotSeeEachOther) {
  RegisterCaller a(Opener(RunId()));
  RegisterCaller b(Opener(RunId("/lead")));
  const RegisterRecord made = a.MustSwap({}, "l1", "c1");
  EXPECT_FALSE(b.MustRead().exists);
  const RegisterRecord other = b.MustSwap({}, "other", "charter");
  ExpectEqual(a.MustRead(), made);
}

TEST_P(RegisterRemovalTest, TheRecordOfAnotherJobIsNotRemoved) {
  RegisterCaller a(Opener(RunId()));
  RegisterCaller b(Opener(RunId("/lead")));
  a.MustSwap({}, "l1", "c1");
  const RegisterRecord other = b.MustSwap({}, "other", "charter");
  service_->Remove(RunId());
  EXPECT_FALSE(a.MustRead().exists);
  ExpectEqual(b.MustRead(), other);
}

TEST_P(RegisterContractTest, ValuesAreBytes) {
  RegisterCaller a(Opener(RunId()));
  const std::string charter(100 << 10, '\xff');
  const std::string lead("\0\n\xfe", 3);
  RegisterRecord record = a.MustSwap({}, lead, charter);
  ExpectEqual(a.MustRead(), record);
  EXPECT_EQ(record.lead, lead);
  EXPECT_EQ(record.charter, charter);
  record = a.MustSwap(record, "");
  EXPECT_EQ(record.charter, charter);
}

TEST_P(RegisterContractTest, NoCallbackIsCalledAfterTheRegisterIsDestroyed) {
  RegisterCaller a(Opener(RunId()));
  int calls = 0;
  a.get().Read(seconds(20), [&](const absl::StatusOr<RegisterRecord>&) { ++calls; });
  a.get().Swap({}, "l1", "c1", seconds(20), [&](const absl::StatusOr<SwapResult>&) { ++calls; });
  a.Close();
  a.io().restart();
  a.io().poll();
  EXPECT_EQ(calls, 0);
}

TEST_P(RegisterContractTest, ARegisterMayBeDestroyedByItsCallback) {
  RegisterCaller a(Opener(RunId()));
  bool called = false;
  a.get().Read(seconds(20), [&](const absl::StatusOr<RegisterRecord>&) {
    called = true;
    a.Close();
  });
  a.io().restart();
  const TimePoint deadline = std::chrono::steady_clock::now() + seconds(30);
  while (!called && a.io().run_one_until(deadline) > 0) {
  }
  EXPECT_TRUE(called);
}

TEST_P(RegisterLimitTest, ASuspendedServiceIsAnErrorAtTheLimit) {
  RegisterCaller a(Opener(RunId()));
  const RegisterRecord first = a.MustSwap({}, "l1", "c1");
  service_->Suspend();
  const TimePoint begin = std::chrono::steady_clock::now();
  const absl::Status read = a.Read(milliseconds(300)).status();
  const absl::Status swap = a.Swap(first, "l2", std::nullopt, milliseconds(300)).status();
  const Duration took = std::chrono::steady_clock::now() - begin;
  service_->Resume();
  for (const absl::Status& status : {read, swap})
    EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) << status;
  EXPECT_LT(took, seconds(5));
  // The swap may have happened, or may happen later.
  const RegisterRecord now = a.MustRead();
  EXPECT_TRUE(now.lead == "l1" || now.lead == "l2") << now.lead;
  EXPECT_EQ(now.charter, "c1");
}

}  // namespace ddprun

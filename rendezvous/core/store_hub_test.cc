#include "rendezvous/core/store_hub.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ddprun {
namespace {

class FakeWaiter : public StoreHub::Waiter {
 public:
  FakeWaiter(std::string name, std::vector<std::string>* log) : name_(std::move(name)), log_(log) {}

  void OnWoken() override {
    log_->push_back(name_);
    if (leaves_) leaves_->Leave(id_);
  }
  void OnStoreGone() override { log_->push_back(name_ + " gone"); }

  void Enter(StoreHub& hub) { id_ = hub.Enter(this); }
  void LeaveWhenWoken(StoreHub* hub) { leaves_ = hub; }
  ConnId id() const { return id_; }

 private:
  const std::string name_;
  std::vector<std::string>* const log_;
  ConnId id_{-1};
  StoreHub* leaves_ = nullptr;
};

class StoreHubTest : public testing::Test {
 protected:
  bool Wait(const FakeWaiter& waiter, absl::string_view key) {
    return hub_->store().Wait(waiter.id(), {key}).value();
  }
  void Set(absl::string_view key) {
    ASSERT_TRUE(hub_->store().Set(key, "", hub_->woken()).ok());
    hub_->Wake();
  }

  std::vector<std::string> log_;
  std::unique_ptr<StoreHub> hub_ = std::make_unique<StoreHub>();
  FakeWaiter a_{"a", &log_}, b_{"b", &log_}, c_{"c", &log_};
};

TEST_F(StoreHubTest, WaitersAreWokenOnceInTheOrderOfTheirWaits) {
  for (FakeWaiter* waiter : {&a_, &b_, &c_}) waiter->Enter(*hub_);
  for (const FakeWaiter* waiter : {&c_, &a_, &b_}) ASSERT_FALSE(Wait(*waiter, "k"));
  Set("k");
  EXPECT_EQ(log_, (std::vector<std::string>{"c", "a", "b"}));
  Set("k");
  EXPECT_EQ(log_.size(), 3);
}

TEST_F(StoreHubTest, AWaiterThatLeftIsNotWoken) {
  for (FakeWaiter* waiter : {&a_, &b_}) waiter->Enter(*hub_);
  for (const FakeWaiter* waiter : {&a_, &b_}) ASSERT_FALSE(Wait(*waiter, "k"));
  hub_->Leave(a_.id());
  EXPECT_EQ(hub_->store().NumWaiting(), 1);
  Set("k");
  EXPECT_EQ(log_, (std::vector<std::string>{"b"}));
}

TEST_F(StoreHubTest, AWaiterThatLeavesBeforeWakeIsNotWoken) {
  for (FakeWaiter* waiter : {&a_, &b_}) waiter->Enter(*hub_);
  for (const FakeWaiter* waiter : {&a_, &b_}) ASSERT_FALSE(Wait(*waiter, "k"));
  ASSERT_TRUE(hub_->store().Set("k", "", hub_->woken()).ok());
  hub_->Leave(a_.id());
  hub_->Wake();
  EXPECT_EQ(log_, (std::vector<std::string>{"b"}));
}

TEST_F(StoreHubTest, AWaiterMayLeaveFromItsCallback) {
  for (FakeWaiter* waiter : {&a_, &b_}) {
    waiter->Enter(*hub_);
    waiter->LeaveWhenWoken(hub_.get());
    ASSERT_FALSE(Wait(*waiter, "k"));
  }
  Set("k");
  EXPECT_EQ(log_, (std::vector<std::string>{"a", "b"}));
  hub_.reset();
  EXPECT_EQ(log_.size(), 2);
}

TEST_F(StoreHubTest, WaitersAreNotifiedWhenTheStoreIsDestroyed) {
  a_.Enter(*hub_);
  b_.Enter(*hub_);
  hub_->Leave(b_.id());
  hub_.reset();
  EXPECT_EQ(log_, (std::vector<std::string>{"a gone"}));
}

TEST_F(StoreHubTest, IdsAreNotReused) {
  a_.Enter(*hub_);
  hub_->Leave(a_.id());
  b_.Enter(*hub_);
  EXPECT_NE(a_.id(), b_.id());
}

}  // namespace
}  // namespace ddprun

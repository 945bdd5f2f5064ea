// The contract of a register, on etcd with one and with three members.
#include "rendezvous/etcd/etcd_register.h"

#include <signal.h>

#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "rendezvous/charter/testing/register_contract.h"
#include "rendezvous/etcd/testing/etcd_cluster.h"

namespace ddprun {
namespace {

class EtcdService final : public RegisterService {
 public:
  explicit EtcdService(int members) : members_(members) {}

  std::string WhyNot() override { return EtcdCluster::WhyNot(); }
  std::unique_ptr<CharterRegister> Open(boost::asio::io_context& io, const std::string& run_id) override {
    return std::make_unique<EtcdRegister>(io,
                                          EtcdOptions{.endpoints = cluster().endpoints(), .run_id = run_id});
  }
  void Remove(const std::string& run_id) override {
    cluster().Ctl({"del", EtcdOptions().prefix + "/" + run_id + "/lead"});
  }
  void Suspend() override {
    for (int i = 0; i < members_; ++i) cluster().Signal(i, SIGSTOP);
  }
  void Resume() override {
    for (int i = 0; i < members_; ++i) cluster().Signal(i, SIGCONT);
  }
  void End() { cluster_ = nullptr; }

 private:
  // Started by the first test that needs it.
  EtcdCluster& cluster() {
    if (cluster_ == nullptr)
      cluster_ = std::make_unique<EtcdCluster>(EtcdCluster::Options{.members = members_});
    return *cluster_;
  }

  const int members_;
  std::unique_ptr<EtcdCluster> cluster_;
};

EtcdService one(1);
EtcdService three(3);

class EndServices final : public testing::Environment {
  void TearDown() override {
    one.End();
    three.End();
  }
};
const auto* const end_services = testing::AddGlobalTestEnvironment(new EndServices);

RegisterService* OneMember() { return &one; }
RegisterService* ThreeMembers() { return &three; }

INSTANTIATE_TEST_SUITE_P(OneMember, RegisterContractTest, testing::Values(&OneMember));
INSTANTIATE_TEST_SUITE_P(OneMember, RegisterLimitTest, testing::Values(&OneMember));
INSTANTIATE_TEST_SUITE_P(OneMember, RegisterRemovalTest, testing::Values(&OneMember));
INSTANTIATE_TEST_SUITE_P(ThreeMembers, RegisterContractTest, testing::Values(&ThreeMembers));
INSTANTIATE_TEST_SUITE_P(ThreeMembers, RegisterRemovalTest, testing::Values(&ThreeMembers));
INSTANTIATE_TEST_SUITE_P(ThreeMembers, RegisterLimitTest, testing::Values(&ThreeMembers));

}  // namespace
}  // namespace ddprun

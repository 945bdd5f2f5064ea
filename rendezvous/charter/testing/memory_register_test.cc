#include "rendezvous/charter/testing/memory_register.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "boost/asio/io_context.hpp"
#include "boost/asio/post.hpp"
#include "gtest/gtest.h"
#include "rendezvous/charter/testing/register_contract.h"

namespace ddprun {
namespace {

class MemoryService final : public RegisterService {
 public:
  std::unique_ptr<CharterRegister> Open(boost::asio::io_context& io, const std::string& run_id) override {
    return std::make_unique<MemoryRegister>(
        &records_[run_id], [&io](std::function<void()> f) { boost::asio::post(io, std::move(f)); });
  }
  void Remove(const std::string& run_id) override {
    RegisterRecord& record = records_[run_id].record;
    record = {.version = record.version + 1};
  }

 private:
  std::map<std::string, MemoryRecord> records_;
};

RegisterService* MakeService() {
  static MemoryService service;
  return &service;
}

INSTANTIATE_TEST_SUITE_P(Memory, RegisterContractTest, testing::Values(&MakeService));
INSTANTIATE_TEST_SUITE_P(Memory, RegisterRemovalTest, testing::Values(&MakeService));

}  // namespace
}  // namespace ddprun

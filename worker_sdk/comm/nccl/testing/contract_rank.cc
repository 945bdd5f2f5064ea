#include "worker_sdk/comm/nccl/testing/contract_rank.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "ddprun/communicator.h"
#include "ddprun/status.h"
#include "worker_sdk/comm/host/fabric.h"
#include "worker_sdk/comm/host/host_group.h"
#include "worker_sdk/comm/nccl/nccl_group.h"
#include "worker_sdk/comm/nccl/testing/gpu_contract.h"
#include "worker_sdk/comm/nccl/testing/gpu_ranks.h"

namespace ddprun {
namespace {

Status CheckContract(RankProcess& self) {
  FakeFileStore store(self.store_dir);
  const int index = static_cast<int>(self.options.local_rank.value());
  DDPRUN_ASSIGN_OR_RETURN(const NcclDevice device, OpenNcclDevice({DeviceType::kCuda, index}, index));
  const auto fabric = std::make_shared<Fabric>();
  DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<HostGroupInterface> host,
                          CreateHostGroup(self.options, &store, fabric));
  DDPRUN_ASSIGN_OR_RETURN(std::shared_ptr<internal::Group> group, CreateNcclGroup(std::move(host), device));
  GpuRank gpu(Communicator(std::move(group)), fabric, device.context);
  for (const GpuContractCase& c : GpuContract()) {
    SCOPED_TRACE(c.name);
    c.check(gpu);
  }
  return OkStatus();
}

}  // namespace

int RunGpuContractRank(RankProcess& self) {
  EXPECT_EQ(CheckContract(self), OkStatus());
  return testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
}

}  // namespace ddprun

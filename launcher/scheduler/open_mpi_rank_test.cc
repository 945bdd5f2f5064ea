#include "launcher/scheduler/open_mpi_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "launcher/scheduler/testing/environment.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr char kMpirun[] = "1096155136.0;tcp://198.18.7.1,10.0.0.1:59671;tcp6://[fd00::1]:60629";

// What Open MPI 4.1 sets for rank 1 of 3, on another node than mpirun.
Environment Rank() {
  return {{"OMPI_COMM_WORLD_SIZE", "3"},
          {"OMPI_COMM_WORLD_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
          {"OMPI_MCA_orte_hnp_uri", kMpirun},
          {"OMPI_MCA_orte_local_daemon_uri", "1096155136.2;tcp://198.18.7.2:44003"}};
}

Environment RankZero() {
  Environment environment = Rank();
  environment["OMPI_COMM_WORLD_RANK"] = "0";
  environment["OMPI_MCA_orte_local_daemon_uri"] = kMpirun;
  return environment;
}

ScheduledJob Found(const Environment& environment, int num_cpus = 8) {
  return FindOpenMpiRank(GetEnvOf(environment), num_cpus).value().value();
}

std::string ErrorOf(const std::string& variable, const std::string& value) {
  Environment environment = Rank();
  environment[variable] = value;
  return std::string(FindOpenMpiRank(GetEnvOf(environment), 8).status().message());
}

TEST(OpenMpiRankTest, ANodeForEachRank) {
  const ScheduledJob job = Found(Rank());
  EXPECT_EQ(job.scheduler, "Open MPI");
  ASSERT_EQ(job.size.size(), 1);
  EXPECT_EQ(job.size[0].option, "nnodes");
  EXPECT_EQ(job.size[0].value, "3");
  EXPECT_EQ(job.size[0].variable, "OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(job.node, 1);
  EXPECT_THAT(job.hosts, IsEmpty());
  EXPECT_THAT(job.first_host, ElementsAre("198.18.7.1", "10.0.0.1", "fd00::1"));
  EXPECT_EQ(job.one_per_node, absl::OkStatus());
  EXPECT_EQ(job.address_known, absl::OkStatus());
  EXPECT_EQ(Found(RankZero()).address_known, absl::OkStatus());
}

TEST(OpenMpiRankTest, TheIdIsThatOfTheMpirun) {
  EXPECT_EQ(Found(Rank()).id, "1096155136.59671");
  EXPECT_EQ(Found(RankZero()).id, "1096155136.59671");
}

TEST(OpenMpiRankTest, OtherProcessesAreUnaffected) {
  EXPECT_EQ(*FindOpenMpiRank(GetEnvOf({}), 8), std::nullopt);
  EXPECT_EQ(*FindOpenMpiRank(GetEnvOf({{"OMPI_MCA_btl", "tcp,self"}}), 8), std::nullopt);
}

TEST(OpenMpiRankTest, SeveralRanksOnANodeCannotFormAJob) {
  Environment environment = Rank();
  environment["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  EXPECT_THAT(std::string(Found(environment).one_per_node.message()),
              AllOf(StartsWith("OMPI_COMM_WORLD_LOCAL_SIZE=2: mpirun starts ddprun 2 times on a node"),
                    HasSubstr("mpirun --map-by ppr:1:node --bind-to none ddprun --nproc-per-node=2")));
}

TEST(OpenMpiRankTest, RankZeroMustBeOnTheNodeOfMpirun) {
  Environment zero = RankZero();
  zero["OMPI_MCA_orte_local_daemon_uri"] = "1096155136.1;tcp://198.18.7.2:44003";
  EXPECT_THAT(std::string(Found(zero).address_known.message()),
              AllOf(HasSubstr("rank 0 is on another node: start mpirun on the first node"),
                    HasSubstr("ddprun --nnodes=3 --rdzv-endpoint=HOST")));
  Environment other = Rank();
  other["OMPI_MCA_orte_local_daemon_uri"] = kMpirun;
  EXPECT_THAT(std::string(Found(other).address_known.message()), HasSubstr("rank 0 is on another node"));
}

TEST(OpenMpiRankTest, WithoutTheAddressOfMpirunAnEndpointIsNeeded) {
  for (const char* uri : {"", "1.0", "1.0;usock", "1.0;tcp://", "1.0;tcp://host"}) {
    Environment environment = Rank();
    environment["OMPI_MCA_orte_hnp_uri"] = uri;
    EXPECT_THAT(std::string(Found(environment).address_known.message()),
                AllOf(StartsWith(std::string("OMPI_MCA_orte_hnp_uri=") + uri + ": "),
                      HasSubstr("ddprun --nnodes=3 --rdzv-endpoint=HOST")))
        << uri;
  }
}

TEST(OpenMpiRankTest, WarnsIfBoundToACore) {
  Environment environment = Rank();
  EXPECT_THAT(Found(environment, 1).warnings, IsEmpty());
  environment["OMPI_MCA_orte_bound_at_launch"] = "1";
  EXPECT_THAT(Found(environment, 1).warnings, ElementsAre(HasSubstr("to 1 CPU: mpirun --bind-to none")));
  EXPECT_THAT(Found(environment, 8).warnings, IsEmpty());
}

TEST(OpenMpiRankTest, ErrorsNameTheVariable) {
  EXPECT_THAT(ErrorOf("OMPI_COMM_WORLD_SIZE", "0"),
              HasSubstr("OMPI_COMM_WORLD_SIZE=0: expected a number from 1"));
  EXPECT_THAT(ErrorOf("OMPI_COMM_WORLD_RANK", "3"),
              HasSubstr("OMPI_COMM_WORLD_RANK=3: expected a number from 0 to 2, as mpirun sets it"));
  EXPECT_THAT(ErrorOf("OMPI_COMM_WORLD_LOCAL_SIZE", ""), HasSubstr("OMPI_COMM_WORLD_LOCAL_SIZE=: expected"));
}

}  // namespace
}  // namespace ddprun

// Compares events with the events that torchrun 2.15 wrote for the same jobs: the keys, their order, and all
// values that do not depend on the host.
#include "launcher/observers/event_log.h"

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JobEventsTest : public testing::Test {
 protected:
  JobEventsTest() {
    config_.num_local_workers = 2;
    config_.run_id = "j";
    config_.backend = Backend::kC10d;
    config_.program = {.argv = {"/usr/bin/python3", "-u", "w.py"}, .name = "w.py"};
    Begin();
  }
  void Begin() {
    events_.emplace(config_, TimePoint(), [this](const std::string& line) {
      EXPECT_EQ(line.back(), '\n');
      lines_.push_back(line.substr(0, line.size() - 1));
    });
  }

  static TimePoint At(int ms) { return TimePoint(milliseconds(ms)); }
  void Round(int restart_count = 0) {
    events_->OnWaiting(At(100));
    events_->OnRound({.group_rank = GroupRank(0),
                      .group_world_size = 1,
                      .first_rank = Rank(0),
                      .world_size = 2,
                      .role_world_size = 2,
                      .restart_count = restart_count},
                     At(350));
    events_->OnWorkerStarted(LocalRank(0), 9143, At(360));
    events_->OnWorkerStarted(LocalRank(1), 9144, At(360));
  }
  static FailureRecord Failed(int local_rank, ExitInfo exit, std::optional<WorkerError> error = {}) {
    return {.failure = {.rank = Rank(local_rank),
                        .local_rank = LocalRank(local_rank),
                        .pid = 9143 + local_rank,
                        .exit = exit},
            .worker_error = error};
  }
  // Returns a short form of each event: "AGENT RENDEZVOUS", "WORKER START 0", ...
  std::vector<std::string> Sequence() const {
    std::vector<std::string> sequence;
    for (const std::string& line : lines_) {
      const boost::json::object event = boost::json::parse(line).as_object();
      const boost::json::object& metadata = event.at("metadata").as_object();
      std::string text =
          absl::StrCat(event.at("source").as_string().c_str(), " ", metadata.at("state").as_string().c_str());
      if (const auto* rank = metadata.at("global_rank").if_int64()) absl::StrAppend(&text, " ", *rank);
      sequence.push_back(text);
    }
    return sequence;
  }

  LaunchConfig config_;
  std::vector<std::string> lines_;
  std::optional<JobEvents> events_;
};

TEST_F(JobEventsTest, WritesAllEventsOfAJobThatSucceeds) {
  events_->OnHostName("localhost");
  Round();
  events_->OnEnd({.reason = EndReason::kSucceeded}, At(1200));
  EXPECT_THAT(Sequence(),
              ElementsAre("AGENT RENDEZVOUS", "AGENT ASSIGN_WORKER_RANKS", "WORKER START 0", "WORKER START 1",
                          "WORKER SUCCEEDED 0", "WORKER SUCCEEDED 1", "AGENT SUCCEEDED"));
  EXPECT_EQ(
      lines_[0],
      R"({"name": "torchelastic.worker.status.RENDEZVOUS", "source": "AGENT", "timestamp": 0, "metadata": )"
      R"({"run_id": "j", "global_rank": null, "group_rank": null, "worker_id": null, "role": "default", )"
      R"("hostname": "localhost", "state": "RENDEZVOUS", "total_run_time": 0, "rdzv_backend": "c10d", )"
      R"("raw_error": null, "metadata": "{\"group_world_size\": null, \"entry_point\": \"python3\"}", )"
      R"("agent_restarts": 0, "duration_ms": 250.0}})");
  EXPECT_EQ(lines_[3],
            R"({"name": "torchelastic.worker.status.START", "source": "WORKER", "timestamp": 0, "metadata": )"
            R"({"run_id": "j", "global_rank": 1, "group_rank": 0, "worker_id": "9144", "role": "default", )"
            R"("hostname": "localhost", "state": "START", "total_run_time": 0, "rdzv_backend": "c10d", )"
            R"("raw_error": null, "metadata": "{\"group_world_size\": 1, \"entry_point\": \"python3\", )"
            R"(\"local_rank\": [1], \"role_rank\": [1], \"role_world_size\": [2], \"exit_code\": [null], )"
            R"(\"worker_pid\": [null]}", "agent_restarts": 0, "duration_ms": null}})");
  EXPECT_THAT(lines_.back(), HasSubstr("\"total_run_time\": 1,"));
}

TEST_F(JobEventsTest, WritesAllEventsOfAJobThatFailsAfterARestart) {
  events_->OnHostName("localhost");
  Round();
  Round(1);
  events_->OnEnd(
      {.reason = EndReason::kJobFailed,
       .why = "",
       .failures = {Failed(1, Exited{3},
                           WorkerError{
                               .text = "x", .timestamp = 17, .json = R"({"message":"x","timestamp":17})"}),
                    Failed(0, Signaled{15, false})}},
      At(2000));
  EXPECT_THAT(Sequence(),
              ElementsAre("AGENT RENDEZVOUS", "AGENT ASSIGN_WORKER_RANKS", "WORKER START 0", "WORKER START 1",
                          "AGENT RENDEZVOUS", "AGENT ASSIGN_WORKER_RANKS", "WORKER START 0", "WORKER START 1",
                          "WORKER FAILED 0", "WORKER FAILED 1", "AGENT SUCCEEDED"));
  EXPECT_THAT(lines_[4], HasSubstr(R"("group_rank": 0, )"));
  EXPECT_THAT(lines_[4], HasSubstr(R"("agent_restarts": 1, )"));
  EXPECT_THAT(lines_[8], HasSubstr(R"(\"exit_code\": [-15], \"worker_pid\": [9143]})"));
  EXPECT_THAT(lines_[8], HasSubstr(R"("raw_error": "{\"message\": \"<NONE>\"}",)"));
  EXPECT_THAT(lines_[9], HasSubstr(R"(\"exit_code\": [3], \"worker_pid\": [9144]})"));
  EXPECT_THAT(lines_[9], HasSubstr(R"("raw_error": "{\"message\": \"x\", \"timestamp\": 17}",)"));
}

TEST_F(JobEventsTest, OtherWorkersOfAFailedJobAreTerminated) {
  events_->OnHostName("localhost");
  Round();
  events_->OnEnd({.reason = EndReason::kJobFailed, .why = "", .failures = {Failed(1, Exited{3})}}, At(2000));
  EXPECT_EQ(Sequence().at(4), "WORKER TERMINATED 0");
  EXPECT_THAT(lines_[5], HasSubstr(R"({\"message\": \"<NONE>\", \"errorTraits\": {\"category\": )"
                                   R"(\"system_terminated_error\", \"retryability\": \"False\"}})"));
}

TEST_F(JobEventsTest, AWorkerThatSurvivesIsNotStartedAgainAndKeepsItsPid) {
  events_->OnHostName("localhost");
  Round();
  events_->OnWaiting(At(1300));
  events_->OnRound({.world_size = 2, .role_world_size = 2, .restart_count = 1}, At(1350));
  events_->OnWorkerKept(LocalRank(1), 9144, At(1350));
  events_->OnWorkerStarted(LocalRank(0), 9150, At(1360));
  events_->OnEnd({.reason = EndReason::kSucceeded}, At(2000));
  EXPECT_THAT(Sequence(),
              ElementsAre("AGENT RENDEZVOUS", "AGENT ASSIGN_WORKER_RANKS", "WORKER START 0", "WORKER START 1",
                          "AGENT RENDEZVOUS", "AGENT ASSIGN_WORKER_RANKS", "WORKER START 0",
                          "WORKER SUCCEEDED 0", "WORKER SUCCEEDED 1", "AGENT SUCCEEDED"));
  EXPECT_THAT(lines_[8], HasSubstr(R"("worker_id": "9144")"));
}

TEST_F(JobEventsTest, AWorkerThatHasParkedHasNotFailed) {
  events_->OnHostName("localhost");
  Round();
  FailureRecord parked = Failed(0, Exited{1});
  parked.failure.parked = true;
  events_->OnEnd(
      {.reason = EndReason::kJobFailed, .why = "", .failures = {parked, Failed(1, Signaled{9, false})}},
      At(2000));
  EXPECT_EQ(Sequence().at(4), "WORKER TERMINATED 0");
  EXPECT_EQ(Sequence().at(5), "WORKER FAILED 1");
}

TEST_F(JobEventsTest, ASignalFailsOnlyTheAgent) {
  events_->OnHostName("localhost");
  Round();
  events_->OnEnd({.reason = EndReason::kTerminated, .why = "received SIGTERM"}, At(2000));
  EXPECT_EQ(Sequence().size(), 5u);
  EXPECT_EQ(Sequence().back(), "AGENT FAILED");
  EXPECT_THAT(lines_.back(), HasSubstr(R"("raw_error": "received SIGTERM",)"));
}

TEST_F(JobEventsTest, WritesAFailedRendezvous) {
  events_->OnHostName("localhost");
  events_->OnWaiting(At(0));
  events_->OnEnd({.reason = EndReason::kJoinTimeout, .why = "too few nodes"}, At(60'000));
  EXPECT_THAT(Sequence(), ElementsAre("AGENT RENDEZVOUS", "AGENT FAILED"));
  EXPECT_THAT(lines_[0], HasSubstr("\"duration_ms\": 60000.0"));
}

TEST_F(JobEventsTest, WatchdogEventsHaveTheirOwnNames) {
  events_->OnHostName("localhost");
  events_->OnWatchdog({.what = "watchdog started"}, At(0));
  events_->OnWatchdog(
      {.what = "timer expired", .pid = 77, .scope = "a \"b\"", .expires = 1795248899.5, .signo = 9}, At(0));
  EXPECT_EQ(lines_[0],
            R"({"name": "watchdog started", "source": "AGENT", "timestamp": 0, "metadata": {"run_id": "j", )"
            R"("global_rank": null, "group_rank": null, "worker_id": null, "role": "default", )"
            R"("hostname": "localhost", "state": "RUNNING", "total_run_time": 0, "rdzv_backend": "c10d", )"
            R"("raw_error": null, "metadata": "{\"watchdog_event\": \"watchdog started\"}", )"
            R"("agent_restarts": 0}})");
  EXPECT_THAT(lines_[1], HasSubstr(R"({\"watchdog_event\": \"timer expired\", \"worker_pid\": \"77\", )"
                                   R"(\"scope_id\": \"a \\\"b\\\"\", \"expiration_time\": )"
                                   R"(\"1795248899.5\", \"signal\": \"9\"})"));
}

TEST_F(JobEventsTest, HoldsEventsUntilTheHostNameIsKnown) {
  config_.backend = Backend::kStatic;
  Begin();
  Round();
  EXPECT_THAT(lines_, IsEmpty());
  events_->OnHostName("node1.example");
  ASSERT_EQ(lines_.size(), 4u);
  EXPECT_THAT(lines_[0], HasSubstr("\"group_rank\": null"))
      << "the event must have the value from the time when it occurred";
  for (const std::string& line : lines_) {
    EXPECT_THAT(line, HasSubstr("\"hostname\": \"node1.example\""));
    EXPECT_THAT(line, HasSubstr("\"rdzv_backend\": \"static\""));
  }
}

}  // namespace
}  // namespace ddprun

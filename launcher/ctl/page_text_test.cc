#include "launcher/ctl/page_text.h"

#include <string>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/ctl/coordinator_page.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPage[] = R"({"service":"ddprun","protocol":3,"jobs":[
  {"run_id":"j","state":"running","outcome":"","outcome_reason":"","round":2,"restarts":1,"max_restarts":3,
   "min_nodes":1,"max_nodes":4,"furthest_step":57,"last_failure":"rank 1 failed","standstill":"round 2 has made no progress",
   "last_transition":"round 2 with 2 nodes","waiting":"this node is a spare","nodes":[
    {"id":"a","host":"n2","addr":"10.0.0.2","state":"waiting","nproc":8,"group_rank":null,"first_rank":null,
     "step":null,"phase":"","excluded":false,"to_be_drained":false},
    {"id":"b","host":"node1","addr":"10.0.0.1","state":"running","nproc":8,"group_rank":1,"first_rank":1,
     "step":57,"phase":"training","excluded":false,"to_be_drained":true},
    {"id":"c","host":"n3","addr":"10.0.0.3","state":"running","nproc":1,"group_rank":0,"first_rank":0,
     "step":null,"phase":"","excluded":false,"to_be_drained":false}]},
  {"run_id":"k","state":"closed","outcome":"failed","outcome_reason":"rank 0 failed","round":0,"restarts":0,
   "max_restarts":0,"min_nodes":1,"max_nodes":1,"furthest_step":null,"last_failure":"rank 0 failed",
   "last_transition":"rank 0 failed","waiting":"","nodes":[]}]})";

TEST(StatusTableTest, ShowsJobsAndNodes) {
  const auto view = StatusTable(kPage, "");
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->text,
            "job j: running, round 2, step 57, restarts 1 of 3, nodes 3 (1 to 4)\n"
            "  waiting: this node is a spare\n"
            "  stands still: round 2 has made no progress\n"
            "  last failure: rank 1 failed\n"
            "  last event: round 2 with 2 nodes\n"
            "  NODE  ADDRESS  STATE                  RANKS STEP PHASE\n"
            "  n3    10.0.0.3 running                0     -    -\n"
            "  node1 10.0.0.1 running, to be drained 1-8   57   training\n"
            "  n2    10.0.0.2 waiting                -     -    -\n"
            "job k: closed (failed), round 0, step -, restarts 0 of 0, nodes 0 (1 to 1)\n"
            "  last failure: rank 0 failed\n"
            "  ended: rank 0 failed\n"
            "  last event: rank 0 failed\n");
  EXPECT_FALSE(view->all_over);
}

TEST(StatusTableTest, ShowsStepTimes) {
  const std::string page =
      absl::StrReplaceAll(kPage, {{R"("furthest_step":57,)", R"("furthest_step":57,"timed_ranks":9,
   "step_times":[
    {"rank":0,"host":"n3","step_us":150000,"spread_us":2100,"data_us":7500,"communication_us":null,"straggler":false},
    {"rank":5,"host":"node1","step_us":150000,"spread_us":900,"data_us":0,"communication_us":30000,"straggler":true},
    {"rank":6,"host":"node1","step_us":0,"spread_us":0,"data_us":0,"communication_us":0,"straggler":false}],)"}});
  const auto view = StatusTable(page, "j");
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_THAT(view->text,
              HasSubstr("\n"
                        "  RANK NODE  STEP TIME SPREAD   DATA COMPUTE COMMUNICATION\n"
                        "  0    n3    150 ms    2.10 ms  5 %  -       -\n"
                        "  5    node1 150 ms    0.900 ms 0 %  80 %    20 %  slower than the others\n"
                        "  6    node1 0.000 ms  0.000 ms -    -       -\n"
                        "  and 6 more ranks\n"));
}

TEST(StatusTableTest, ShowsOneJob) {
  const auto view = StatusTable(kPage, "k");
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_THAT(view->text, Not(HasSubstr("job j")));
  EXPECT_TRUE(view->all_over);
  EXPECT_EQ(StatusTable(kPage, "x").status(), absl::NotFoundError("there is no job x; known jobs: j, k"));
}

// Names are sent by the nodes and may contain any bytes.
TEST(StatusTableTest, RemovesControlSequencesFromNames) {
  const std::string page = absl::StrReplaceAll(kPage, {{"\"node1\"", R"("\u001b[2Jnode1\u0007")"}});
  const auto view = StatusTable(page, "");
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->text, StatusTable(kPage, "")->text);
  const auto lines = ParseEvents(
      R"({"seq":1,"ms":0,"time":"2026-01-01 00:00:00","event":"node_joined","reason":"node \u001b[31mn1"})");
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_THAT(lines->text, HasSubstr(" node n1\n"));
}

TEST(StatusTableTest, APageWithoutJobsIsNotOver) {
  const auto view = StatusTable(R"({"jobs":[]})", "");
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->text, "no jobs\n");
  EXPECT_FALSE(view->all_over);
}

TEST(StatusTableTest, RejectsPagesInAnotherFormat) {
  for (const char* bad : {"", "x", "[]", "{}", R"({"jobs":3})", R"({"jobs":[{"run_id":"j"}]})"}) {
    EXPECT_EQ(StatusTable(bad, "").status().code(), absl::StatusCode::kInternal) << bad;
  }
}

TEST(EventLinesTest, FormatsEachEventAsOneLine) {
  const auto lines = ParseEvents(
      R"({"seq":7,"ms":0,"time":"2026-01-02T03:04:05.678Z","event":"node_joined","reason":"node a"})"
      "\n"
      R"({"seq":8,"ms":12,"time":"2026-01-02T03:04:05.690Z","event":"job_closed","reason":"enough"})"
      "\n");
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_EQ(lines->text,
            "2026-01-02T03:04:05.678Z node_joined       node a\n"
            "2026-01-02T03:04:05.690Z job_closed        enough\n");
  EXPECT_EQ(lines->last_seq, 8u);
  EXPECT_TRUE(lines->over);
  EXPECT_EQ(ParseEvents("")->last_seq, 0u);
  for (const char* bad : {"x\n", "{}\n", R"({"seq":"7","time":"","event":"","reason":""})"}) {
    EXPECT_EQ(ParseEvents(bad).status().code(), absl::StatusCode::kInternal) << bad;
  }
}

TEST(QueryEncodedTest, EscapesReservedCharacters) {
  EXPECT_EQ(QueryEncoded("a/b c-1_2.3&"), "a%2Fb%20c-1_2.3%26");
}

}  // namespace
}  // namespace ddprun

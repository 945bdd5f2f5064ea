#include "tests/fault/testing/host_job.h"

#include <chrono>
#include <utility>

#include "gmock/gmock.h"

namespace ddprun {
namespace {

// Where the coordinator listens; a host's ports are its own.
constexpr char kPort[] = "29400";
constexpr int kSteps = 600;

// Its last part: a test that fails should be read by people.
std::string Tail(const std::string& text) {
  constexpr size_t kMax = 4000;
  return text.size() <= kMax ? text : "..." + text.substr(text.size() - kMax);
}

// `train` with so many snapshots that little is done twice. The directory is its own.
Args TrainProgram() {
  return {TrainPath(),
          "--layers=1",
          "--heads=2",
          "--width=32",
          "--context=32",
          "--global-batch=8",
          "--log-every=1",
          "--snapshot-every=10",
          "--snapshot-dir=" + MakeTestDirectory(),
          "--steps=" + std::to_string(kSteps)};
}

// The last line of a training: step, loss and SHA-256 of all parameters.
std::string Result(const std::string& printed) {
  const size_t sha = printed.rfind(" sha256=");
  if (sha == std::string::npos) return "no result in: " + Tail(printed);
  const size_t begin = printed.rfind('\n', sha) + 1;  // npos + 1: the first line
  return printed.substr(begin, printed.find('\n', sha) - begin);
}

// Of a run that nothing disturbs. All tests of a process share it.
const std::string& UndisturbedResult() {
  static const auto& result = *new std::string([] {
    Process alone(TrainProgram());
    EXPECT_EQ(alone.Wait(seconds(100)), ProcessEnd{.code = 0}) << alone.err();
    return Result(alone.out());
  }());
  return result;
}

int IntIn(const std::string& line, const std::string& before) {
  const size_t at = line.find(before);
  return at == std::string::npos ? -1 : std::stoi(line.substr(at + before.size()));
}

}  // namespace

HostJob::HostJob(int hosts, Args options, Args program)
    : hosts_(hosts), options_(std::move(options)), program_(std::move(program)), agents_(hosts) {}

Process& HostJob::Start(int host, const Args& more, const Environment& environment) {
  const Args options = {"--rdzv-backend=c10d", "--rdzv-endpoint=" + hosts_.name(meeting_host_) + ":" + kPort,
                        "--rdzv-id=job",
                        "--rdzv-conf=last_call_timeout=1,lease_ms=" + std::to_string(ToMillis(kLease))};
  Environment all = {{"LOGLEVEL", "INFO"}};
  all.insert(all.end(), environment.begin(), environment.end());
  agents_.at(host) = hosts_.Start(host, Args{DdprunPath()} + options + options_ + more + program_, all);
  return *agents_[host];
}

int HostJob::AwaitWorld(int host, int world_size) {
  const std::string size = "world_size=\"" + std::to_string(world_size) + "\"";
  for (;;) {
    const std::string line = AwaitSaid(host, "event=round_started");
    if (line.empty()) return -1;
    if (line.find(size) != std::string::npos) return IntIn(line, "round=\"");
  }
}

std::string HostJob::AwaitSaid(int host, const std::string& part, Duration timeout) {
  const std::vector<std::string> lines = agent(host).AwaitErr(part, 1, timeout);
  if (!lines.empty()) return lines[0];
  ADD_FAILURE() << "node" << host << " did not say: " << part << "\n" << Tail(agent(host).err());
  return "";
}

std::string HostJob::AwaitPrinted(int host, const std::string& part, Duration timeout) {
  const std::vector<std::string> lines = agent(host).AwaitOut(part, 1, timeout);
  if (!lines.empty()) return lines[0];
  ADD_FAILURE() << "node" << host << " did not print: " << part << "\n"
                << Tail(agent(host).out()) << Tail(agent(host).err());
  return "";
}

void HostJob::ExpectEnd(int host, const ProcessEnd& end) {
  EXPECT_EQ(agent(host).Wait(kPatience), end) << "node" << host << "\n" << Tail(agent(host).err());
  EXPECT_EQ(hosts_.Left(host), std::vector<std::string>());
}

void HostFaultTest::SetUp() {
  static const std::string why_not = Hosts::WhyNot();
  if (!why_not.empty()) GTEST_SKIP() << why_not;
}

void HostFaultTest::Detected(TimePoint at) {
  detected_ = at;
  RecordProperty("detection_us", static_cast<int>((at - fault_) / std::chrono::microseconds(1)));
}

void HostFaultTest::Recovered(TimePoint at) {
  RecordProperty("recovery_us", static_cast<int>((at - detected_) / std::chrono::microseconds(1)));
}

void TrainingTest::StartTraining(const Setup& setup) {
  Args program = TrainProgram();
  if (!setup.shell.empty()) program = Args{"/bin/sh", "-c", setup.shell + "; exec \"$@\"", "sh"} + program;
  const Args options = {"--nnodes=1:" + std::to_string(setup.hosts), "--max-restarts=1",
                        "--shutdown-timeout=5"};
  job_ = std::make_unique<HostJob>(setup.hosts, options + setup.options, program);
  for (int host = 0; host < setup.hosts; ++host) {
    all_.push_back(host);
    job_->Start(host, {}, setup.environment);
    if (host == 0) job_->agent(0).HoldOut();
  }
  for (const int host : all_) job_->AwaitWorld(host, setup.hosts);
  job_->AwaitPrinted(0, "step=20/");
}

pid_t TrainingTest::worker(int host) {
  const std::vector<pid_t> workers = hosts().Find(host, "train");
  EXPECT_THAT(workers, testing::SizeIs(1));
  return workers.at(0);
}

void TrainingTest::ComeBack(int host) {
  job_->Start(host);
  for (const int each : all_) job_->AwaitWorld(each, static_cast<int>(all_.size()));
}

void TrainingTest::ExpectRestart(const std::string& reason, int world_size) {
  EXPECT_THAT(job_->AwaitSaid(0, "stopping the workers of round"), testing::HasSubstr(reason));
  Detected(job_->agent(0).found_at());
  job_->AwaitWorld(0, world_size);
  Recovered(job_->agent(0).found_at());
  EXPECT_THAT(job_->AwaitPrinted(0, "event=resume"), testing::Not(testing::HasSubstr(" step=0 ")));
}

void TrainingTest::ExpectResult(const std::vector<int>& hosts) {
  for (const int host : all_) {
    job_->agent(host).FreeOut();
  }
  for (const int host : hosts) job_->ExpectEnd(host, {.code = 0});
  EXPECT_EQ(Result(job_->agent(hosts[0]).out()), UndisturbedResult());
}

void TrainingTest::ExpectUndisturbed() {
  for (const int host : all_) {
    EXPECT_THAT(job_->agent(host).err(), testing::Not(testing::HasSubstr("stopping the workers")));
  }
}

}  // namespace ddprun

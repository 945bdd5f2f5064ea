#include "tests/fault/testing/host_job.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <utility>

#include "gmock/gmock.h"

namespace ddprun {
namespace {

// The coordinator's port. It can be fixed, because each host has its own network.
constexpr char kPort[] = "29400";
constexpr int kSteps = 600;

// Returns the end of `text`, so that failure messages stay readable.
std::string Tail(const std::string& text) {
  constexpr size_t kMax = 4000;
  return text.size() <= kMax ? text : "..." + text.substr(text.size() - kMax);
}

// Returns the command line of `train`. Snapshots are frequent, so that few steps are repeated after a
// restart.
Args TrainProgram(const std::string& snapshots, int batch) {
  return {TrainPath(),
          "--layers=1",
          "--heads=2",
          "--width=32",
          "--context=32",
          "--global-batch=" + std::to_string(batch),
          "--log-every=1",
          "--snapshot-every=10",
          "--snapshot-dir=" + snapshots,
          "--steps=" + std::to_string(kSteps)};
}

// Returns the final line of a training run: step, loss and SHA-256 of all parameters.
std::string Result(const std::string& printed) {
  const size_t sha = printed.rfind(" sha256=");
  if (sha == std::string::npos) return "no result in: " + Tail(printed);
  const size_t begin = printed.rfind("step=", sha);
  return printed.substr(begin, printed.find('\n', sha) - begin);
}

// Returns the result of a run without faults, which is computed only once per process and batch size.
const std::string& UndisturbedResult(int batch) {
  static auto& results = *new std::map<int, std::string>();
  std::string& result = results[batch];
  if (result.empty()) {
    Process alone(TrainProgram(MakeTestDirectory(), batch));
    EXPECT_EQ(alone.Wait(seconds(100)), ProcessEnd{.code = 0}) << alone.err();
    result = Result(alone.out());
  }
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
  const Args options = {std::string("--rdzv-backend=") + (etcd_.empty() ? "c10d" : "etcd"),
                        "--rdzv-endpoint=" + Endpoint(), "--rdzv-id=job",
                        "--rdzv-conf=last_call_timeout=1,lease_ms=" + std::to_string(ToMillis(kLease)),
                        "--shutdown-timeout=5"};
  Environment all = {{"LOGLEVEL", "INFO"}};
  all.insert(all.end(), environment.begin(), environment.end());
  agents_.at(host) =
      hosts_.Start(host, start_with_ + Args{DdprunPath()} + options + options_ + more + program_, all);
  return *agents_[host];
}

void HostJob::UseEtcdOn(const std::vector<int>& hosts) {
  for (const int host : hosts) etcd_[host] = std::make_unique<EtcdServer>(hosts_, host, hosts);
  for (const auto& [host, member] : etcd_) member->AwaitHealthy();
}

int HostJob::EtcdLeader() const {
  for (const auto& [host, member] : etcd_) {
    if (member->Leads()) return host;
  }
  ADD_FAILURE() << "no member of etcd leads";
  return -1;
}

std::string HostJob::Endpoint() const {
  if (!etcd_.empty()) {
    std::string endpoints;
    for (const auto& [host, member] : etcd_) endpoints += (endpoints.empty() ? "" : ",") + member->endpoint();
    return endpoints;
  }
  return (by_address_ ? hosts_.address(endpoint_host_) : hosts_.name(endpoint_host_)) + ":" + kPort;
}

int HostJob::AwaitWorld(int host, int world_size) {
  const std::string size = "world_size=\"" + std::to_string(world_size) + "\"";
  for (;;) {
    const std::string line = AwaitLogged(host, "event=round_started");
    if (line.empty()) return -1;
    if (line.find(size) != std::string::npos) return IntIn(line, "round=\"");
  }
}

std::string HostJob::AwaitLogged(int host, const std::string& part, Duration timeout) {
  const std::vector<std::string> lines = agent(host).AwaitErr(part, 1, timeout);
  if (!lines.empty()) return lines[0];
  ADD_FAILURE() << "node" << host << " did not log: " << part << "\n" << Tail(agent(host).err());
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

std::unique_ptr<Process> HostJob::Control(int host, const Args& args, const std::string& endpoint) {
  const std::string ddpctl = hosts_.directory(host) + "/../ddpctl";  // the name selects the program
  if (!std::filesystem::exists(ddpctl)) std::filesystem::create_symlink(DdprunPath(), ddpctl);
  const Args where = etcd_.empty() ? Args{} : Args{"--rdzv-backend=etcd", "--job=job"};
  auto control =
      hosts_.Start(host, Args{ddpctl} + args + where +
                             Args{"--rdzv-endpoint=" + (endpoint.empty() ? Endpoint() : endpoint)});
  EXPECT_TRUE(control->Wait(kPatience)) << "ddpctl did not exit";
  return control;
}

void HostFaultTest::SetUp() {
  static const std::string why_not = Hosts::WhyNot();
  if (!why_not.empty()) GTEST_SKIP() << why_not;
}

void HostFaultTest::FaultNow() {
  fault_ = std::chrono::steady_clock::now();
  RecordProperty("fired", 1);
}

void HostFaultTest::Detected(TimePoint at) {
  detected_ = at;
  RecordProperty("detection_us", static_cast<int>((at - fault_) / std::chrono::microseconds(1)));
}

void HostFaultTest::Recovered(TimePoint at) {
  RecordProperty("recovery_us", static_cast<int>((at - detected_) / std::chrono::microseconds(1)));
}

void TrainingTest::PrepareTraining(const Setup& setup) {
  setup_ = setup;
  if (setup_.hosts == 0) setup_.hosts = setup_.max;
  if (setup_.present == 0) setup_.present = setup_.hosts;
  const std::string snapshots = MakeTestDirectory();
  Args program = TrainProgram(snapshots, setup.batch);
  if (!setup.shell.empty()) program = Args{"/bin/sh", "-c", setup.shell + "; exec \"$@\"", "sh"} + program;
  const std::string nodes = std::to_string(setup.min) + ":" + std::to_string(setup.max);
  const Args options = {"--nnodes=" + nodes, "--max-restarts=1"};
  job_ = std::make_unique<HostJob>(setup_.hosts + setup_.etcd_members, options + setup.options, program);
  std::vector<int> etcd_hosts(setup_.etcd_members);
  std::iota(etcd_hosts.begin(), etcd_hosts.end(), setup_.hosts);
  job_->UseEtcdOn(etcd_hosts);
  if (setup.by_address) job_->UseAddressAsEndpoint();
  if (setup.prepare) setup.prepare(snapshots);
}

void TrainingTest::StartTraining(const Setup& setup, int world_size) {
  PrepareTraining(setup);
  for (int host = 0; host < setup_.present; ++host) {
    StartHost(host);
    if (host == 0)
      job_->AwaitLogged(0, "event=node_joined");  // so that host 0 gets rank 0, which prints the steps
  }
  for (int host = 0; host < setup_.present; ++host)
    job_->AwaitWorld(host, world_size == 0 ? setup_.present : world_size);
  job_->AwaitPrinted(0, "step=20/");
  said_before_ = job_->agent(0).err().size();
}

void TrainingTest::StartHost(int host) {
  const auto options = setup_.more_options.find(host);
  const auto environment = setup_.environments.find(host);
  job_->Start(host, options == setup_.more_options.end() ? Args{} : options->second,
              environment == setup_.environments.end() ? Environment{} : environment->second);
  if (host == 0) job_->agent(0).HoldOut();
}

void TrainingTest::AwaitWorldOf(const std::vector<int>& hosts) {
  for (const int host : hosts) job_->AwaitWorld(host, static_cast<int>(hosts.size()));
}

pid_t TrainingTest::worker(int host) {
  const std::vector<pid_t> workers = hosts().Find(host, "train");
  EXPECT_THAT(workers, testing::SizeIs(1));
  return workers.at(0);
}

void TrainingTest::AwaitRoundEnd() {
  job_->AwaitLogged(0, "event=round_ended");
  Detected(job_->agent(0).found_at());
}

std::string TrainingTest::AwaitRestart(int world_size) {
  job_->AwaitWorld(0, world_size);
  Recovered(job_->agent(0).found_at());
  EXPECT_THAT(job_->AwaitPrinted(0, "event=resume"), testing::Not(testing::HasSubstr(" step=0 ")));
  return job_->agent(0).err().substr(said_before_);
}

void TrainingTest::ExpectChange(const std::string& reason, int world_size) {
  AwaitRoundEnd();
  const std::string said = AwaitRestart(world_size);
  EXPECT_THAT(said, testing::HasSubstr(reason));
  EXPECT_THAT(said, testing::Not(testing::HasSubstr("restart_count=\"1\"")));
}

void TrainingTest::ExpectFailure(const std::string& cause, int world_size) {
  AwaitRoundEnd();
  const std::string said = AwaitRestart(world_size);
  EXPECT_THAT(said, testing::HasSubstr("restart_count=\"1\""));
  // Other workers fail as a consequence, and their failures may arrive first.
  const size_t report = said.rfind("event=round_report");
  EXPECT_NE(report, std::string::npos) << said;
  EXPECT_THAT(said.substr(std::min(said.size(), report), said.find('\n', report) - report),
              testing::HasSubstr(cause));
}

void TrainingTest::ExpectResult(const std::vector<int>& hosts) {
  for (const int host : hosts) job_->agent(host).FreeOut();
  for (const int host : hosts) job_->ExpectEnd(host, {.code = 0});
  EXPECT_EQ(Result(job_->agent(hosts[0]).out()), UndisturbedResult(setup_.batch));
}

void TrainingTest::ExpectCloseResult(const std::vector<int>& hosts) {
  for (const int host : hosts) job_->agent(host).FreeOut();
  for (const int host : hosts) job_->ExpectEnd(host, {.code = 0});
  std::string result;
  for (const int host : hosts) {
    const std::string out = job_->agent(host).out();
    if (result.empty() && out.find("sha256=") != std::string::npos) result = Result(out);
  }
  const auto field = [](const std::string& line, const std::string& name) {
    const size_t at = line.find(name);
    return at == std::string::npos ? -1 : std::stod(line.substr(at + name.size()));
  };
  const std::string undisturbed = UndisturbedResult(setup_.batch);
  EXPECT_EQ(field(result, "step="), field(undisturbed, "step=")) << result;
  EXPECT_GT(field(result, "loss="), 0) << result;
  EXPECT_NEAR(field(result, "loss="), field(undisturbed, "loss="), 1e-3);
}

void TrainingTest::ExpectUndisturbed() {
  EXPECT_THAT(job_->agent(0).err().substr(said_before_),
              testing::Not(testing::HasSubstr("event=round_ended")));
}

}  // namespace ddprun

#include "rendezvous/etcd/testing/etcd_cluster.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/time.h"

namespace ddprun {
namespace {

constexpr Duration kHealthLimit = seconds(60);
constexpr int kPortTries = 5;

// Starts a program with its output in the descriptors. It is killed when this thread ends.
pid_t Spawn(const std::vector<std::string>& argv, int out, int err) {
  std::vector<std::string> words = {"setpriv", "--pdeathsig", "KILL", "--"};
  words.insert(words.end(), argv.begin(), argv.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  DDPRUN_CHECK(posix_spawn_file_actions_init(&actions) == 0, argv[0]);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, pointers[0], &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  DDPRUN_CHECK(error == 0, argv[0] << ": " << std::strerror(error));
  return pid;
}

// Sockets that hold free ports of 127.0.0.1 until they are all chosen.
class FreePorts {
 public:
  int Next() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    DDPRUN_CHECK(fd >= 0 && bind(fd, generic, size) == 0 && getsockname(fd, generic, &size) == 0,
                 std::strerror(errno));
    fds_.push_back(fd);
    return ntohs(address.sin_port);
  }
  ~FreePorts() {
    for (const int fd : fds_) close(fd);
  }

 private:
  std::vector<int> fds_;
};

bool OnPath(const std::string& program) {
  for (const absl::string_view folder : absl::StrSplit(std::getenv("PATH"), ':'))
    if (access(absl::StrCat(folder, "/", program).c_str(), X_OK) == 0) return true;
  return false;
}

std::string NewDirectory() {
  const char* parent = std::getenv("TEST_TMPDIR");
  std::string path = absl::StrCat(parent != nullptr ? parent : "/tmp", "/etcd-XXXXXX");
  DDPRUN_CHECK(mkdtemp(path.data()) != nullptr, path);
  return path;
}

}  // namespace

std::string RunProgram(const std::vector<std::string>& argv, int* code) {
  int fds[2];
  DDPRUN_CHECK(pipe2(fds, O_CLOEXEC) == 0, std::strerror(errno));
  const pid_t pid = Spawn(argv, fds[1], code == nullptr ? STDERR_FILENO : fds[1]);
  close(fds[1]);
  std::string out;
  char bytes[4096];
  for (ssize_t n; (n = read(fds[0], bytes, sizeof(bytes))) > 0;) out.append(bytes, n);
  close(fds[0]);
  int status = 0;
  DDPRUN_CHECK(waitpid(pid, &status, 0) == pid, std::strerror(errno));
  const int exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code != nullptr) {
    *code = exit_code;
  } else {
    DDPRUN_CHECK(exit_code == 0, absl::StrJoin(argv, " ") << ": " << out);
  }
  return out;
}

std::string ReadWholeFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  DDPRUN_CHECK(file.good(), path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TestCertificates::TestCertificates(const std::string& directory)
    : ca(directory + "/ca.pem"),
      server(directory + "/server.pem"),
      server_key(directory + "/server.key"),
      client(directory + "/client.pem"),
      client_key(directory + "/client.key") {
  std::filesystem::create_directories(directory);
  const std::string ca_key = directory + "/ca.key", request = directory + "/request";
  const std::vector<std::string> new_key = {"-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                                            "-nodes"};
  const auto run = [](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    int code = 0;
    const std::string out = RunProgram(words, &code);  // openssl says much on stderr
    DDPRUN_CHECK(code == 0, out);
  };
  run({"openssl", "req", "-x509", "-days", "2", "-subj", "/CN=ca", "-keyout", ca_key, "-out", ca}, new_key);
  for (const auto& [certificate, key] : {std::pair(server, server_key), std::pair(client, client_key)}) {
    run({"openssl", "req", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key,
         "-out", request},
        new_key);
    run({"openssl", "x509", "-req", "-in", request, "-copy_extensions", "copy", "-CA", ca, "-CAkey", ca_key,
         "-CAcreateserial", "-days", "2", "-out", certificate},
        {});
  }
}

std::string EtcdCluster::WhyNot() {
  for (const char* program : {"etcd", "etcdctl", "openssl", "setpriv"})
    if (!OnPath(program))
      return absl::StrCat("needs ", program,
                          " (packages etcd-server, etcd-client and openssl: tools/dev setup --etcd)");
  return "";
}

EtcdCluster::EtcdCluster(Options options) : options_(std::move(options)) {
  for (int i = 0; i < kPortTries; ++i) {
    directory_ = NewDirectory();
    if (TryStart()) return;
    for (Member& member : members_) End(member);
    std::filesystem::remove_all(directory_);
  }
  DDPRUN_CHECK(false, "etcd: no free ports in " << kPortTries << " tries");
}

EtcdCluster::~EtcdCluster() {
  for (Member& member : members_) End(member);
  std::filesystem::remove_all(directory_);
}

// Returns false if another process has taken one of the ports.
bool EtcdCluster::TryStart() {
  members_.clear();
  endpoints_.clear();
  std::vector<std::string> peers, initial;
  {
    FreePorts ports;
    for (int i = 0; i < options_.members; ++i) {
      endpoints_.push_back(absl::StrCat("127.0.0.1:", ports.Next()));
      peers.push_back(absl::StrCat("http://127.0.0.1:", ports.Next()));
      initial.push_back(absl::StrCat("m", i, "=", peers.back()));
    }
  }
  const std::string scheme = options_.certificates != nullptr ? "https://" : "http://";
  for (int i = 0; i < options_.members; ++i) {
    const std::string url = scheme + endpoints_[i];
    Member member{
        .argv = {"etcd", absl::StrCat("--name=m", i), absl::StrCat("--data-dir=", directory_, "/m", i),
                 "--listen-client-urls=" + url, "--advertise-client-urls=" + url,
                 "--listen-peer-urls=" + peers[i], "--initial-advertise-peer-urls=" + peers[i],
                 "--initial-cluster=" + absl::StrJoin(initial, ","), "--initial-cluster-token=" + directory_,
                 "--logger=zap", "--log-level=warn"},
        .log = absl::StrCat(directory_, "/m", i, ".log")};
    if (const TestCertificates* certificates = options_.certificates; certificates != nullptr) {
      member.argv.push_back("--cert-file=" + certificates->server);
      member.argv.push_back("--key-file=" + certificates->server_key);
      if (options_.client_certificates) member.argv.push_back("--trusted-ca-file=" + certificates->ca);
    }
    member.argv.insert(member.argv.end(), options_.flags.begin(), options_.flags.end());
    members_.push_back(std::move(member));
  }
  for (Member& member : members_) Start(member);
  if (AwaitHealth(endpoints_)) return true;
  std::string logs;
  for (const Member& member : members_) absl::StrAppend(&logs, ReadWholeFile(member.log));
  DDPRUN_CHECK(absl::StrContains(logs, "address already in use"), "etcd: " << logs);
  return false;
}

void EtcdCluster::Start(Member& member) {
  const int log = open(member.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  DDPRUN_CHECK(log >= 0, member.log);
  member.pid = Spawn(member.argv, log, log);
  close(log);
}

// Returns false if a member has exited.
bool EtcdCluster::AwaitHealth(const std::vector<std::string>& endpoints) {
  const TimePoint deadline = std::chrono::steady_clock::now() + kHealthLimit;
  while (true) {
    int code = 0;
    // It waits itself until the members answer.
    const std::string out =
        Ctl({"--endpoints=" + absl::StrJoin(endpoints, ","), "endpoint", "health"}, &code);
    if (code == 0) return true;
    for (Member& member : members_)
      if (waitpid(member.pid, nullptr, WNOHANG) == member.pid) {
        member.pid = -1;
        return false;
      }
    DDPRUN_CHECK(std::chrono::steady_clock::now() < deadline, "etcd is not healthy: " << out);
  }
}

void EtcdCluster::End(Member& member) {
  if (member.pid < 0) return;
  kill(member.pid, SIGKILL);
  waitpid(std::exchange(member.pid, -1), nullptr, 0);
}

void EtcdCluster::Signal(int member, int signo) {
  const pid_t pid = members_[member].pid;
  kill(pid, signo);
  // On a busy machine its threads run on for a while.
  int status = 0;
  if (signo == SIGSTOP)
    DDPRUN_CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status), "member " << member);
}

void EtcdCluster::Kill(int member) { End(members_[member]); }

void EtcdCluster::Restart(int member) {
  Start(members_[member]);
  DDPRUN_CHECK(AwaitHealth({endpoints_[member]}), ReadWholeFile(members_[member].log));
}

int EtcdCluster::Leader() {
  for (int i = 0; i < options_.members; ++i) {
    if (members_[i].pid < 0) continue;
    int code = 0;
    // Fields: endpoint, id, version, size, whether it leads, ...
    const std::string out = Ctl({"--endpoints=" + endpoints_[i], "endpoint", "status"}, &code);
    const std::vector<std::string> fields = absl::StrSplit(out, ", ");
    if (code == 0 && fields.size() > 4 && fields[4] == "true") return i;
  }
  DDPRUN_CHECK(false, "no leader");
}

std::string EtcdCluster::Ctl(const std::vector<std::string>& arguments, int* code) {
  std::vector<std::string> words = {"env", "ETCDCTL_API=3", "etcdctl", "--command-timeout=5s"};
  if (!absl::StartsWith(arguments[0], "--endpoints="))
    words.push_back("--endpoints=" + absl::StrJoin(endpoints_, ","));
  if (const TestCertificates* certificates = options_.certificates; certificates != nullptr)
    words.insert(words.end(), {"--cacert=" + certificates->ca, "--cert=" + certificates->client,
                               "--key=" + certificates->client_key});
  words.insert(words.end(), ctl_options_.begin(), ctl_options_.end());
  words.insert(words.end(), arguments.begin(), arguments.end());
  return RunProgram(words, code);
}

}  // namespace ddprun

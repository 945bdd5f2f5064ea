// A private etcd on this machine, for tests: one or several members on free ports.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace ddprun {

// Runs a program of a test's environment to its end, and returns its stdout. `code` gets its exit code; if it is null, aborts
// the test unless the code is 0.
std::string RunProgram(const std::vector<std::string>& argv, int* code = nullptr);

// Certificates for 127.0.0.1, made by openssl: PEM files in one directory.
struct TestCertificates {
  // Creates a CA, and certificates of a server and of a client that it signs, in `directory`.
  explicit TestCertificates(const std::string& directory);

  // Paths of files: certificates and keys.
  std::string ca, server, server_key, client, client_key;
};
std::string ReadWholeFile(const std::string& path);

// Members are killed when the test ends, also if it is killed.
//   Threads: the thread that has created it, which must be the main thread.
class EtcdCluster {
 public:
  struct Options {
    int members = 1;
    std::vector<std::string> flags = {};             // of all members
    const TestCertificates* certificates = nullptr;  // for clients; null: no TLS
    bool client_certificates = false;                // are required
  };

  // Why there can be no cluster here; empty if there can.
  static std::string WhyNot();

  // Returns when all members are healthy. Aborts the test on failure.
  explicit EtcdCluster(Options options);
  EtcdCluster() : EtcdCluster(Options{}) {}
  ~EtcdCluster();
  EtcdCluster(const EtcdCluster&) = delete;
  EtcdCluster& operator=(const EtcdCluster&) = delete;

  // HOST:PORT of each member.
  const std::vector<std::string>& endpoints() const { return endpoints_; }
  void Signal(int member, int signo);  // after SIGSTOP, returns when all its threads have stopped
  void Kill(int member);               // with SIGKILL; returns when it has ended
  // Starts a member again with its data; returns when it is healthy.
  void Restart(int member);
  int Leader();  // a member; aborts the test if there is none

  // Runs etcdctl with these arguments and returns its stdout. `code` as for RunProgram.
  std::string Ctl(const std::vector<std::string>& arguments, int* code = nullptr);
  // Options of etcdctl for the following calls, for example --user.
  void SetCtlOptions(std::vector<std::string> options) { ctl_options_ = std::move(options); }

 private:
  struct Member {
    pid_t pid = -1;
    std::vector<std::string> argv;
    std::string log;
  };
  bool TryStart();
  void Start(Member& member);
  bool AwaitHealth(const std::vector<std::string>& endpoints);
  void End(Member& member);

  const Options options_;
  std::string directory_;
  std::vector<std::string> endpoints_;
  std::vector<Member> members_;
  std::vector<std::string> ctl_options_;
};

}  // namespace ddprun

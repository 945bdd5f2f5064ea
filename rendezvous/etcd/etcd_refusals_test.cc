// What etcd refuses, and what the messages say: authentication, TLS, quota.
#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rendezvous/charter/charter_register.h"
#include "rendezvous/etcd/etcd_options.h"
#include "rendezvous/etcd/testing/etcd_caller.h"
#include "rendezvous/etcd/testing/etcd_cluster.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class EtcdRefusalsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = EtcdCluster::WhyNot(); !why.empty()) GTEST_SKIP() << why;
  }
  static EtcdOptions Options(const EtcdCluster& etcd) {
    return {.endpoints = etcd.endpoints(), .run_id = "job", .prefix = "/ddprun/"};
  }
  static EtcdOptions Options(const EtcdCluster& etcd, const std::string& user, const std::string& password) {
    EtcdOptions options = Options(etcd);
    options.user = user;
    options.password = password;
    return options;
  }
  // Users: root, writer, who may use the keys of the job, and other, who may not.
  static void AddUsers(EtcdCluster& etcd) {
    for (const char* user : {"root:rootpw", "writer:pw", "other:pw"}) etcd.Ctl({"user", "add", user});
    etcd.Ctl({"role", "add", "ddprun"});
    etcd.Ctl({"role", "grant-permission", "ddprun", "readwrite", "--prefix=true", "/ddprun/job"});
    etcd.Ctl({"user", "grant-role", "writer", "ddprun"});
    etcd.Ctl({"user", "grant-role", "root", "root"});
  }
  static void EnableAuthentication(EtcdCluster& etcd) {
    etcd.Ctl({"auth", "enable"});
    etcd.SetCtlOptions({"--user=root:rootpw"});
  }
  static void ExpectError(const absl::Status& status, absl::StatusCode code, const EtcdCluster& etcd,
                          const std::string& text) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("etcd at " + etcd.endpoints()[0]), HasSubstr(text)));
  }
  // Both calls fail at once, and say the same.
  static void ExpectRefused(const EtcdOptions& options, absl::StatusCode code, const EtcdCluster& etcd,
                            const std::string& text) {
    EtcdCaller caller(options);
    const TimePoint begin = std::chrono::steady_clock::now();
    ExpectError(caller.Read().status(), code, etcd, text);
    ExpectError(caller.Swap({}, "l1").status(), code, etcd, text);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10));
  }
};

TEST_F(EtcdRefusalsTest, AuthenticationByUserAndPassword) {
  EtcdCluster etcd;
  AddUsers(etcd);
  EtcdCaller early(Options(etcd, "writer", "pw"));
  RegisterRecord record = early.MustSwap({}, "l1", "c1");  // etcd does not ask for a user yet
  EnableAuthentication(etcd);
  record = early.MustSwap(record, "l2");
  EtcdCaller late(Options(etcd, "writer", "pw"));
  EXPECT_EQ(late.MustRead().lead, "l2");

  ExpectRefused(Options(etcd, "writer", "wrong"), absl::StatusCode::kUnauthenticated, etcd,
                "user 'writer': unknown, or wrong password");
  ExpectRefused(Options(etcd, "nobody", "pw"), absl::StatusCode::kUnauthenticated, etcd,
                "user 'nobody': unknown, or wrong password");
  ExpectRefused(Options(etcd, "other", "pw"), absl::StatusCode::kPermissionDenied, etcd,
                "`etcdctl role grant-permission ROLE readwrite --prefix=true /ddprun/job`");
  ExpectRefused(Options(etcd), absl::StatusCode::kUnauthenticated, etcd, "give a user and a password");
  EXPECT_EQ(late.MustRead().version, record.version);
}

// A member that starts again does not know the tokens that it has given.
TEST_F(EtcdRefusalsTest, ATokenThatIsNoLongerValidIsReplaced) {
  EtcdCluster etcd;
  AddUsers(etcd);
  EnableAuthentication(etcd);
  EtcdCaller swaps(Options(etcd, "writer", "pw"));
  EtcdCaller reads(Options(etcd, "writer", "pw"));
  const RegisterRecord first = swaps.MustSwap({}, "l1", "c1");
  EXPECT_EQ(reads.MustRead().version, first.version);
  etcd.Kill(0);
  etcd.Restart(0);
  EXPECT_EQ(reads.MustRead().version, first.version);
  EXPECT_EQ(swaps.MustSwap(first, "l2").charter, "c1");
}

TEST_F(EtcdRefusalsTest, AuthenticationThatChangesMeanwhile) {
  EtcdCluster etcd;
  AddUsers(etcd);
  EnableAuthentication(etcd);
  EtcdCaller writer(Options(etcd, "writer", "pw"));
  const RegisterRecord first = writer.MustSwap({}, "l1", "c1");
  etcd.Ctl({"user", "add", "later:pw"});  // the token is that of an older revision of the users
  const RegisterRecord second = writer.MustSwap(first, "l2");
  etcd.Ctl({"user", "revoke-role", "writer", "ddprun"});
  ExpectError(writer.Swap(second, "l3").status(), absl::StatusCode::kPermissionDenied, etcd, "user 'writer'");
  etcd.Ctl({"user", "grant-role", "writer", "ddprun"});
  EXPECT_EQ(writer.MustSwap(second, "l3").charter, "c1");
}

TEST_F(EtcdRefusalsTest, Tls) {
  const std::string directory = std::string(std::getenv("TEST_TMPDIR"));
  const TestCertificates ours(directory + "/ours");
  const TestCertificates others(directory + "/others");
  EtcdCluster etcd({.certificates = &ours});
  EtcdOptions options = Options(etcd);
  options.tls = EtcdTls{.ca = ReadWholeFile(ours.ca)};
  EtcdCaller caller(options);
  EXPECT_EQ(caller.MustSwap({}, "l1", "c1").lead, "l1");

  options.tls = EtcdTls{.ca = ReadWholeFile(others.ca)};
  ExpectRefused(options, absl::StatusCode::kFailedPrecondition, etcd, "is not signed by the given CA");
  options.tls = EtcdTls{};
  ExpectRefused(options, absl::StatusCode::kFailedPrecondition, etcd, "is not signed by the given CA");
  options.tls = EtcdTls{.ca = "no PEM"};
  ExpectRefused(options, absl::StatusCode::kInvalidArgument, etcd, "check that each is PEM");
  options.tls.reset();
  const absl::Status plain = EtcdCaller(options).Read(milliseconds(500)).status();
  ExpectError(plain, absl::StatusCode::kUnavailable, etcd, "if it requires TLS, give the CA certificate");
}

TEST_F(EtcdRefusalsTest, ClientCertificates) {
  const std::string directory = std::string(std::getenv("TEST_TMPDIR"));
  const TestCertificates ours(directory + "/ours_too");
  const TestCertificates others(directory + "/others_too");
  EtcdCluster etcd({.certificates = &ours, .client_certificates = true});
  EtcdOptions options = Options(etcd);
  const EtcdTls good = {.ca = ReadWholeFile(ours.ca),
                        .certificate = ReadWholeFile(ours.client),
                        .key = ReadWholeFile(ours.client_key)};
  options.tls = good;
  EtcdCaller caller(options);
  EXPECT_EQ(caller.MustSwap({}, "l1", "c1").lead, "l1");

  options.tls->key = ReadWholeFile(others.client_key);
  ExpectRefused(options, absl::StatusCode::kInvalidArgument, etcd,
                "that the key is that of the client certificate");
  options.tls->certificate = ReadWholeFile(others.client);
  const absl::Status foreign = EtcdCaller(options).Read(milliseconds(500)).status();
  ExpectError(foreign, absl::StatusCode::kUnavailable, etcd, "it may not accept the client certificate");
  options.tls = EtcdTls{.ca = good.ca};
  const absl::Status none = EtcdCaller(options).Read(milliseconds(500)).status();
  ExpectError(none, absl::StatusCode::kUnavailable, etcd, "client certificate, of which none is given");
}

TEST_F(EtcdRefusalsTest, TlsToAMemberWithoutIt) {
  const TestCertificates ours(std::string(std::getenv("TEST_TMPDIR")) + "/unused");
  EtcdCluster etcd;
  EtcdOptions options = Options(etcd);
  options.tls = EtcdTls{.ca = ReadWholeFile(ours.ca)};
  const absl::Status status = EtcdCaller(options).Read(milliseconds(500)).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("leave out the CA certificate"));
}

TEST_F(EtcdRefusalsTest, AFullDatabaseTakesNoWritesUntilItIsCleared) {
  EtcdCluster etcd({.flags = {"--quota-backend-bytes=1000000"}});
  EtcdCaller writer(Options(etcd));
  const std::string charter(100 << 10, 'x');
  RegisterRecord record = writer.MustSwap({}, "l", charter);
  absl::Status full;
  const TimePoint deadline = std::chrono::steady_clock::now() + seconds(30);
  while (full.ok() && std::chrono::steady_clock::now() < deadline) {
    const auto result = writer.Swap(record, "l", charter);
    full = result.status();
    if (result.ok()) record = result->current;
  }
  ExpectError(full, absl::StatusCode::kResourceExhausted, etcd, "`etcdctl alarm disarm`");
  // Reads go on. The quota is checked before the swap is proposed.
  EXPECT_EQ(writer.MustRead().version, record.version);
  EXPECT_EQ(writer.Swap({}, "l").status().code(), absl::StatusCode::kResourceExhausted);

  etcd.Ctl({"compact", absl::StrCat(record.version)});
  etcd.Ctl({"defrag"});
  etcd.Ctl({"alarm", "disarm"});
  EXPECT_EQ(writer.MustSwap(record, "l2").charter, charter);
}

TEST_F(EtcdRefusalsTest, ARecordThatIsTooLarge) {
  EtcdCluster etcd;
  EtcdCaller writer(Options(etcd));
  for (const size_t bytes : {1600 << 10, 3 << 20})
    ExpectError(writer.Swap({}, "l1", std::string(bytes, 'x')).status(), absl::StatusCode::kInvalidArgument,
                etcd, "raise its --max-request-bytes");
  EXPECT_FALSE(writer.MustRead().exists);
}

}  // namespace
}  // namespace ddprun

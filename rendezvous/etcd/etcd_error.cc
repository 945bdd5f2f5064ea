#include "rendezvous/etcd/etcd_error.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ddprun {
namespace {

using Next = EtcdError::Next;

std::string Quoted(absl::string_view message) {
  return message.empty() ? "no cause given" : std::string(message);
}

// gRPC could not connect, so it has sent nothing. The texts are those of gRPC 1.51; with other texts a swap would not be tried
// at another endpoint.
bool NotConnected(absl::string_view message) {
  return absl::StartsWith(message, "failed to connect to all addresses") ||
         absl::StartsWith(message, "DNS resolution failed") ||
         absl::StrContains(message, "empty address list");
}

EtcdError Wrong(std::string text) {
  return {Next::kWrongEndpoint, true, absl::FailedPreconditionError(text)};
}

std::string TlsHint(const EtcdErrorContext& context) {
  if (!context.tls) return "if it requires TLS, give the CA certificate";
  return absl::StrCat("it may not accept the client certificate",
                      context.client_certificate ? "" : ", of which none is given",
                      ", or it does not use TLS: then leave out the CA certificate");
}

EtcdError ExplainNoConnection(absl::string_view message, const EtcdErrorContext& context) {
  const std::string lower = absl::AsciiStrToLower(message);
  const auto has = [&](absl::string_view part) { return absl::StrContains(lower, part); };
  if (has("http1.x server"))
    return Wrong("an HTTP/1 server answers there, not etcd; check the host and the port of the endpoint");
  if (has("wrong version number") || has("wrong_version_number"))
    return Wrong("it does not speak TLS; leave out the CA certificate, or check the port");
  if (has("certificate verify failed") || has("certificate_verify_failed") || has("peer name"))
    return Wrong(
        "its certificate is not valid for this host, or is not signed by the given CA; check the CA "
        "certificate and the names in "
        "the member's certificate");
  if (has("handshake failed") || has("handshaker"))
    return Wrong(absl::StrCat("the TLS handshake failed (", message,
                              "); check that the endpoint uses TLS, and the ",
                              context.client_certificate ? "client certificate" : "CA certificate"));
  // No connection was tried, because its credentials could not be made.
  if (has("empty address list") && context.tls)
    return {EtcdError::Next::kStop, true,
            absl::InvalidArgumentError("the CA certificate, the client certificate or its key cannot be "
                                       "used; check that each is PEM, and that the key "
                                       "is that of the client certificate")};
  std::string hint = "check that etcd runs there, and the port";
  if (absl::StartsWith(message, "DNS resolution failed")) {
    hint = "check the name of the host";
  } else if (has("socket closed") || has("endpoint read failed") || has("connection reset") ||
             has("broken pipe")) {
    hint = absl::StrCat("the endpoint closed the connection: check that etcd runs there, and the port; ",
                        TlsHint(context));
  }
  return {Next::kNextEndpoint, true, absl::UnavailableError(absl::StrCat(message, "; ", hint))};
}

EtcdError ExplainUnavailable(absl::string_view message, const EtcdErrorContext& context) {
  if (NotConnected(message)) return ExplainNoConnection(message, context);
  if (absl::StrContains(message, "no leader"))
    return {Next::kNextEndpoint, true,
            absl::UnavailableError("the member has no leader, because it does not reach the majority of the "
                                   "members; check `etcdctl endpoint "
                                   "status --cluster`")};
  if (absl::StrContains(message, "etcdserver: request timed out"))
    return {
        Next::kNextEndpoint, false,
        absl::UnavailableError(absl::StrCat(
            message,
            "; etcd has lost its leader or its majority, or its disk is slow; check `etcdctl endpoint status "
            "--cluster`"))};
  if (absl::StartsWith(message, "etcdserver: "))
    return {Next::kNextEndpoint, false, absl::UnavailableError(message)};
  return {Next::kNextEndpoint, false,
          absl::UnavailableError(absl::StrCat("the connection was lost (", message, ")"))};
}

std::string UserText(const EtcdErrorContext& context) {
  return context.user.empty() ? "without a user" : absl::StrCat("user '", context.user, "'");
}

}  // namespace

EtcdError ExplainEtcdError(const absl::Status& answer, const EtcdErrorContext& context) {
  const std::string message = Quoted(answer.message());
  const auto says = [&](absl::string_view part) { return absl::StrContains(message, part); };
  // Errors of etcd that come before anything is carried out, whatever their code: later versions have changed some codes.
  if (says("etcdserver: requested lease not found")) return {Next::kGrantLease, true, answer};
  if (says("etcdserver: invalid auth token") || says("etcdserver: revision of auth store is old"))
    return {Next::kAuthenticate, true,
            absl::UnauthenticatedError(
                absl::StrCat(UserText(context), ": etcd refuses its token (", message, ")"))};
  if (says("etcdserver: user name is empty"))
    return {context.user.empty() ? Next::kStop : Next::kAuthenticate, true,
            absl::UnauthenticatedError("etcd requires authentication; give a user and a password")};
  if (says("etcdserver: authentication failed"))
    return {Next::kStop, true,
            absl::UnauthenticatedError(absl::StrCat(UserText(context),
                                                    ": unknown, or wrong password; check both (`etcdctl user "
                                                    "list`, `etcdctl user passwd`)"))};
  if (says("etcdserver: permission denied"))
    return {Next::kStop, true,
            absl::PermissionDeniedError(absl::StrCat(
                UserText(context), ": no permission to read and write keys that begin with ", context.keys,
                "; grant it with `etcdctl role grant-permission ROLE readwrite --prefix=true ", context.keys,
                "`"))};
  if (says("etcdserver: mvcc: database space exceeded"))
    return {Next::kStop, true,
            absl::ResourceExhaustedError("its database has reached its quota, so it takes no writes; compact "
                                         "it (`etcdctl compact REVISION`), defragment "
                                         "all members (`etcdctl defrag --cluster`), then `etcdctl alarm "
                                         "disarm`, or raise --quota-backend-bytes")};
  if (says("etcdserver: corrupt cluster"))
    return {Next::kStop, true,
            absl::FailedPreconditionError("it has raised the alarm CORRUPT: the data of its members differ; "
                                          "see `etcdctl alarm list`, replace the bad "
                                          "member, then `etcdctl alarm disarm`")};
  if (says("etcdserver: lease already exists")) return {Next::kStop, true, answer};
  if (says("etcdserver: request is too large") || says("grpc: received message larger than max"))
    return {
        Next::kStop, true,
        absl::InvalidArgumentError("the record is larger than etcd accepts; raise its --max-request-bytes")};
  if (says("etcdserver: too many requests"))
    return {Next::kNextEndpoint, true, absl::UnavailableError("it is overloaded (too many requests)")};
  if (says("Received http2 header with status"))
    return Wrong(absl::StrCat("a server answers there that is not etcd (", message,
                              "); check the host and the port of the endpoint"));
  switch (answer.code()) {
    case absl::StatusCode::kUnavailable:
      return ExplainUnavailable(message, context);
    case absl::StatusCode::kUnimplemented:
      return Wrong(
          "a gRPC server answers there that does not have etcd's v3 API; check the host and the port of the "
          "endpoint, which must "
          "be a client port of etcd 3.4 or newer");
    case absl::StatusCode::kInvalidArgument:
      return {Next::kStop, true, answer};
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
      return {Next::kNextEndpoint, false,
              absl::DeadlineExceededError("no answer in time; check that the process there is etcd, and "
                                          "that it is not suspended or overloaded")};
    default:
      return {Next::kNextEndpoint, false, absl::UnavailableError(message)};
  }
}

}  // namespace ddprun

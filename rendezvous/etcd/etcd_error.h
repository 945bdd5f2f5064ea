// What an error of a call to etcd means: its cause in words, a remedy, and what to do next. Pure.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace ddprun {

struct EtcdError {
  enum class Next {
    kStop,           // `status` is the result of the call: another endpoint would say the same
    kNextEndpoint,   // the endpoint is not usable at present
    kWrongEndpoint,  // the endpoint is not usable without a change of the options or of the service
    kAuthenticate,   // the token is no longer valid
    kGrantLease,     // the lease of the keys does not exist
  };
  Next next = Next::kStop;
  // The call was certainly not carried out, and will not be. Otherwise it may have been, or may be later.
  bool not_done = false;
  absl::Status status = {};  // the message does not name the endpoint
};

// What the text of an error refers to.
struct EtcdErrorContext {
  std::string user = {};  // empty: none
  std::string keys = {};  // what the keys of the job begin with
  bool tls = false;
  bool client_certificate = false;
};

// `answer` is the status of a call as gRPC returned it; not OK.
EtcdError ExplainEtcdError(const absl::Status& answer, const EtcdErrorContext& context);

}  // namespace ddprun

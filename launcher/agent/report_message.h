// The coordinator's report of a failed round, as the page that is shown.
#pragma once

#include "launcher/report/job_page.h"
#include "proto/rendezvous.pb.h"

namespace ddprun {

JobPage PageOf(const proto::JobReport& report);

}  // namespace ddprun

// Blocks the launcher's signals from startup until it can handle them.
#pragma once

#include <vector>

#include "boost/asio/signal_set.hpp"

namespace ddprun {

// Blocks the signals that users, terminals and schedulers send to end a job or to warn it (SIGTERM, SIGINT,
// SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2), so that none is lost or takes its default action before the command
// line is parsed. Call it first in main().
void HoldSignals();

// Adds `which` to `signals` and unblocks the signals of HoldSignals(); those that are pending are delivered.
// Signals not in `which` keep their default action: they end this process, and the warden then kills the
// workers. SIGHUP is not added if it is ignored: under nohup the job must outlive its terminal.
void TakeSignals(boost::asio::signal_set& signals, const std::vector<int>& which);

}  // namespace ddprun

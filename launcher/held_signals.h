// Blocks signals from process start until the launcher can handle them.
#pragma once

#include <vector>

#include "boost/asio/signal_set.hpp"

namespace ddprun {

// Blocks the signals with which users, terminals and schedulers end a job or announce its end (SIGTERM,
// SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2). These signals stay pending until TakeSignals is called. Call
// before this process starts a thread.
void HoldSignals();

// Adds the signals in `which` to `signals`, then unblocks the signals that HoldSignals() has blocked; pending
// signals are delivered. Signals that are not in `which` keep their default action, which ends this
// process; the warden then kills the workers. SIGHUP is not added if this process ignores it: under nohup,
// the job must outlive its terminal.
void TakeSignals(boost::asio::signal_set& signals, const std::vector<int>& which);

}  // namespace ddprun

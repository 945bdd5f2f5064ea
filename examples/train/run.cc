#include "examples/train/run.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/time.h"
#include "ddprun/context.h"
#include "ddprun/status.h"
#include "examples/train/agreement.h"
#include "examples/train/batch_shares.h"
#include "examples/train/chart.h"
#include "examples/train/corpus.h"
#include "examples/train/device_choice.h"
#include "examples/train/metrics.h"
#include "examples/train/model/layers.h"
#include "examples/train/progress.h"
#include "examples/train/replica.h"
#include "examples/train/sample_log.h"
#include "examples/train/trace.h"
#include "examples/train/trainer.h"
#include "worker_sdk/comm/long_work.h"
#include "worker_sdk/context_state.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/ledger/ledger.h"
#include "worker_sdk/ledger/ledger_keeper.h"
#include "worker_sdk/snapshot/file_io.h"
#include "worker_sdk/snapshot/snapshot_store.h"

namespace ddprun::train {
namespace {

constexpr int kKeptSnapshots = 3;
constexpr char kStopText[] = "the ranks have stopped because of a stop notice";

TimePoint Now() { return std::chrono::steady_clock::now(); }

// Returns the wall-clock time in microseconds since 1970.
int64_t MicrosOfDay() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// One run. Each member is declared after the members that it refers to.
class TrainingRun {
 public:
  TrainingRun(const Options& options, Context& context, std::ostream& out, std::ostream& remarks)
      : options_(options), context_(context), out_(out), remarks_(remarks) {}

  Status Run() {
    OpenLedger();
    DDPRUN_RETURN_IF_ERROR(Prepare());
    DDPRUN_RETURN_IF_ERROR(PrepareRound());
    if (options_.in_place) context_.Survive();
    StatusOr<Communicator> comm = context_.Connect();
    while (true) {
      stopped_ = false;
      Status status = comm.ok() ? RunRound(*comm) : comm.status();
      if (stopped_ && options_.in_place) status = AbortedError(kStopText);
      if (status.ok() || !options_.in_place || !context_.MayContinue(status))
        return stopped_ ? OkStatus() : status;
      comm = context_.NextRound(status);
      if (stopped_ && IsFailedPrecondition(comm.status())) return OkStatus();  // no round follows
      DDPRUN_RETURN_IF_ERROR(ValidateForWorld(options_, context_.world_size()));
      OpenLedger();
      // Before the first operation of the round: an operation needs all ranks, so no later round has begun until then.
      if (comm.ok()) DDPRUN_RETURN_IF_ERROR(PrepareRound());
    }
  }

 private:
  [[nodiscard]] bool leads() const { return context_.rank() == 0; }
  [[nodiscard]] TraceLog* trace() { return options_.trace.empty() ? nullptr : &trace_log_; }
  [[nodiscard]] Duration stall_limit() const { return seconds(options_.stall_timeout_s); }

  Status RunRound(Communicator comm) {
    comm_ = std::move(comm);
    DDPRUN_RETURN_IF_ERROR(Meet());
    DDPRUN_RETURN_IF_ERROR(Train());
    if (stopped_) return OkStatus();
    context_.Report(trainer_->step(), Phase::kFinishing);
    return Conclude();
  }

  void OpenLedger() { ledger_.emplace(internal::ContextState::Of(context_).env, MicrosOfDay(), Now()); }

  // Performs the part of the setup that the process needs once.
  Status Prepare() {
    context_.Report(0, Phase::kLoading, "text");
    DDPRUN_ASSIGN_OR_RETURN(corpus_, LoadCorpus(options_.data));
    if (corpus_.NumSamples(options_.model.context) < 1) {
      return FailedPreconditionError(
          StrCat("--context=", options_.model.context, " is longer than the text: ", corpus_.source, " has ",
                 corpus_.bytes.size(), " bytes, give a smaller context or more text"));
    }
    if (LayersFor<float>(options_.cpu) == nullptr) {
      return FailedPreconditionError(
          StrCat("--cpu=", options_.cpu, ": this CPU does not support that kind, give --cpu=baseline"));
    }
    if (!leads()) return OkStatus();
    for (const std::string& skipped : corpus_.skipped) remarks_ << "train: skipped " << skipped << std::endl;
    return OkStatus();
  }

  // Performs the part of the setup of a round that does not involve the other ranks.
  Status PrepareRound() {
    snapshot_written_ = true;
    store_.emplace(options_.snapshot_dir, kKeptSnapshots);
    metrics_.reset();
    if (!options_.sample_log.empty()) {
      DDPRUN_ASSIGN_OR_RETURN(SampleLog log,
                              SampleLog::Open(options_.sample_log, context_.round(), context_.rank()),
                              "--sample-log");
      sample_log_.emplace(std::move(log));
    }
    if (!leads()) return OkStatus();
    if (!options_.snapshot_dir.empty())
      DDPRUN_RETURN_IF_ERROR(UnlessFull(store_->Prepare()), "--snapshot-dir");
    if (options_.metrics.empty()) return OkStatus();
    DDPRUN_ASSIGN_OR_RETURN(MetricsWriter writer, MetricsWriter::Open(options_.metrics));
    metrics_.emplace(std::move(writer));
    return OkStatus();
  }

  // Connects to the other ranks. On success, all ranks have the same state.
  Status Meet() {
    DDPRUN_ASSIGN_OR_RETURN(comm_, ConnectOnDevice(context_, comm_, options_.device, stall_limit(), out_));
    if (trainer_) {
      if (comm_.device().type != trainer_->device().type) {
        return FailedPreconditionError(
            StrCat("--device=auto: this round uses another kind of device than the rounds before, in which "
                   "this process "
                   "was: give --device=cpu or --device=cuda"));
      }
      trainer_->Rejoin(comm_);
    } else {
      DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<Replica> replica,
                              MakeReplica(options_, Trainer::ShapeFor(options_, comm_), comm_.device()),
                              "--device=cuda");
      trainer_.emplace(options_, corpus_, std::move(replica), comm_, trace());
    }
    DDPRUN_ASSIGN_OR_RETURN(const bool recovered, Recover());
    if (!options_.snapshot_dir.empty()) {
      // The directory is taken over before a snapshot is selected: after that, no earlier round can add one.
      if (leads()) {
        DDPRUN_RETURN_IF_ERROR(UnlessFull(store_->TakeOver(context_.run_id(), Round(context_.round()))),
                               "--snapshot-dir");
        KeepLedger();
      }
      if (!recovered) DDPRUN_RETURN_IF_ERROR(Resume());
    }
    DDPRUN_RETURN_IF_ERROR(CheckAgreement(comm_, trainer_->Facts(!recovered), stall_limit()));
    if (trace() != nullptr) {
      trace_log_.Clear();
      DDPRUN_ASSIGN_OR_RETURN(trace_started_, StartTrace(comm_, Now() + stall_limit()), "--trace");
    }
    if (!leads()) return OkStatus();
    out_ << absl::StrFormat(
                "event=train step=%d steps=%d world_size=%d round=%d restart=%d bytes=%d%s data=\"%s\"",
                trainer_->step(), options_.steps, context_.world_size(), context_.round(),
                context_.restart_count(), corpus_.bytes.size(), recovered ? " in_place=yes" : "",
                corpus_.source)
         << std::endl;
    WarnOfOtherSums();
    return OkStatus();
  }

  // With --in-place: continues with the state of ranks that have survived the round before. Returns false if there are none.
  StatusOr<bool> Recover() {
    recovered_ = false;
    if (!options_.in_place) return false;
    const auto committed = [this] {
      if (leads()) AppendMetrics(/*tokens_per_s=*/0);
    };
    DDPRUN_ASSIGN_OR_RETURN(recovered_, trainer_->Recover(context_, committed));
    return recovered_;
  }

  // Called at the start of every round, and therefore after each change of the number of workers.
  void WarnOfOtherSums() {
    const int world_size = context_.world_size();
    if (SumsAsOneWorker(options_.global_batch, world_size)) return;
    remarks_ << "train: --global-batch=" << options_.global_batch << " among " << world_size << " workers, "
             << SharesInWords(options_.global_batch, world_size)
             << ": results equal those of other numbers of workers up to the rounding of sums; they are "
                "bit-identical if each worker has the same power-of-two number of sequences"
             << std::endl;
  }

  // Turns the error for a full disk into a warning. A full disk prevents snapshots but does not stop
  // training: existing snapshots remain readable, and space may become free later.
  Status UnlessFull(const Status& status) {
    if (!IsResourceExhausted(status)) return status;
    remarks_ << "train: --snapshot-dir: " << status.message() << "; training continues; free space there"
             << std::endl;
    return OkStatus();
  }

  Status Resume() {
    context_.Report(0, Phase::kLoading, "snapshot");
    std::vector<SkippedSnapshot> all_skipped;
    DDPRUN_ASSIGN_OR_RETURN(const std::optional<StoredSnapshot> newest,
                            AgreeOnSnapshot(comm_, *store_, stall_limit(), &all_skipped), "--snapshot-dir");
    for (const SkippedSnapshot& skipped : all_skipped) {
      remarks_ << "train: skipped a snapshot: " << skipped.reason.message() << std::endl;
    }
    if (!newest) return OkStatus();
    const std::string path = StrCat(store_->directory(), "/", newest->name);
    DDPRUN_RETURN_IF_ERROR(trainer_->Restore(newest->snapshot), path);
    if (leads()) {
      out_ << absl::StrFormat("event=resume step=%d snapshot=%s written_by=%d", trainer_->step(), path,
                              newest->snapshot.world_size)
           << std::endl;
    }
    return OkStatus();
  }

  // The ledger is informational, so a failure to write it causes only a warning.
  void KeepLedger() {
    const StatusOr<std::string> remark = ledger_->KeepIn(StrCat(store_->directory(), "/ledger"));
    if (!remark.ok()) return LedgerFailed(remark.status());
    if (!remark->empty()) remarks_ << "train: " << *remark << std::endl;
  }
  void LedgerFailed(const Status& status) {
    if (status.ok() || ledger_failed_) return;
    ledger_failed_ = true;
    remarks_ << "train: the ledger will have gaps: " << status.message() << std::endl;
  }

  Status Train() {
    const int64_t tokens = options_.global_batch * options_.model.context;
    Progress progress(trainer_->step(), options_.steps, tokens, Now());
    context_.Report(trainer_->step(), Phase::kTraining);
    if (leads()) LedgerFailed(ledger_->Ready(trainer_->step(), Now()));
    if (recovered_ && trainer_->step() > 0 && SnapshotIsDue()) DDPRUN_RETURN_IF_ERROR(BookedSnapshot());
    while (trainer_->step() < options_.steps) {
      DDPRUN_RETURN_IF_ERROR(LogSamples(), "--sample-log");
      // After a failed snapshot, requests are ignored until a snapshot succeeds. The next attempt is the next
      // scheduled snapshot, so that training does not retry after every step.
      DDPRUN_RETURN_IF_ERROR(
          trainer_->Step({.snapshot = leads() && context_.snapshot_requested() && snapshot_written_,
                          .stop = context_.stop_notice().has_value()}));
      context_.Report(trainer_->step(), Phase::kTraining);
      if (leads()) ReportStep(progress);
      if (SnapshotIsDue()) DDPRUN_RETURN_IF_ERROR(BookedSnapshot());
      stopped_ = trainer_->wished().stop && trainer_->step() < options_.steps;
      if (stopped_) {
        if (leads())
          out_ << absl::StrFormat("event=stopped step=%d reason=\"%s\"", trainer_->step(), WhyStopped())
               << std::endl;
        return OkStatus();
      }
    }
    return OkStatus();
  }

  [[nodiscard]] std::string WhyStopped() const {
    const std::optional<StopNotice> notice = context_.stop_notice();
    return notice ? notice->reason : "another rank has a stop notice";
  }

  Status BookedSnapshot() {
    DDPRUN_RETURN_IF_ERROR(TakeSnapshot());
    if (leads()) ledger_->Book(Activity::kSnapshots, Now());
    return OkStatus();
  }

  void ReportStep(Progress& progress) {
    const int64_t step = trainer_->step();
    const TimePoint now = Now();
    LedgerFailed(ledger_->StepDone(step, now));
    progress.StepDone(now);
    AppendMetrics(progress.StepTokensPerSecond());
    if (step % options_.log_every == 0 || step == options_.steps) {
      out_ << progress.Line(trainer_->loss(), now) << std::endl;
    }
    ledger_->Book(Activity::kOther, Now());
  }

  Status LogSamples() {
    if (!sample_log_) return OkStatus();
    Trainer::Part part = trainer_->NextPart();
    return sample_log_->Append({.round = context_.round(),
                                .step = trainer_->step() + 1,
                                .rank = context_.rank(),
                                .world_size = context_.world_size(),
                                .epoch = part.epoch,
                                .position = part.position,
                                .samples = std::move(part.samples)});
  }

  // Prints a warning when writing metrics starts to fail, and a message when it succeeds again.
  void AppendMetrics(double tokens_per_s) {
    if (!metrics_) return;
    const Status appended = metrics_->Append({.step = trainer_->step(),
                                              .loss = trainer_->loss(),
                                              .time = static_cast<double>(MicrosOfDay()) * 1e-6,
                                              .world_size = context_.world_size(),
                                              .restart = context_.restart_count(),
                                              .round = context_.round(),
                                              .tokens_per_s = tokens_per_s});
    if (appended.ok() == metrics_appended_) return;
    metrics_appended_ = appended.ok();
    if (appended.ok()) {
      remarks_ << "train: metrics again from step " << trainer_->step() << " on" << std::endl;
    } else {
      remarks_ << "train: no metrics from step " << trainer_->step() << " on: " << appended.message()
               << "; training continues" << std::endl;
    }
  }

  // Returns true at each interval, after the last step, and when the agent has requested a snapshot from
  // rank 0, or a stop from any rank. The result is the same on all ranks.
  [[nodiscard]] bool SnapshotIsDue() const {
    if (options_.snapshot_dir.empty()) return false;
    const int64_t step = trainer_->step();
    return step % options_.snapshot_every == 0 || step == options_.steps || trainer_->wished().snapshot ||
           trainer_->wished().stop;
  }

  // Rank 0 writes a snapshot; the other ranks wait while rank 0 makes progress.
  Status TakeSnapshot() {
    const int64_t step = trainer_->step();
    if (leads()) context_.Report(step, Phase::kSnapshotting);
    const TraceSpan span(trace(), TraceKind::kSnapshot, step);
    if (leads()) DDPRUN_RETURN_IF_ERROR(trainer_->Fetch());
    Status written;
    const LongWork write = [&](WorkProgress& progress) {
      Snapshot snapshot = trainer_->State();
      snapshot.world_size = context_.world_size();
      snapshot.round = Round(context_.round());
      written = store_->Write(snapshot, [&](int64_t bytes) { progress.Advance(bytes); });
    };
    const Status together = FinishTogether(comm_, StrCat("writing the snapshot of step ", step),
                                           stall_limit(), leads() ? write : nullptr);
    if (leads()) DDPRUN_RETURN_IF_ERROR(SnapshotResult(written));  // even if `together` is an error
    return together;
  }

  // A failed snapshot causes only a warning, with two exceptions. A failure to write the last snapshot, at the end
  // or before a stop, fails the run. kAborted also fails the run, because it means that the round is over.
  Status SnapshotResult(const Status& written) {
    const int64_t step = trainer_->step();
    snapshot_written_ = written.ok();
    if (written.ok()) {
      context_.ReportSnapshot(step);
      return OkStatus();
    }
    if (IsAborted(written)) return written;
    const std::string_view advice = IsResourceExhausted(written) ? "; free space there" : "";
    if (step == options_.steps || (trainer_->wished().stop && !options_.in_place)) {
      return Status(written.code(), StrCat("the last snapshot: ", written.message(), advice,
                                           "; the next start resumes from the previous snapshot"));
    }
    const int64_t next = step - step % options_.snapshot_every + options_.snapshot_every;
    remarks_ << "train: no snapshot of step " << step << ": " << written.message()
             << "; training continues, the next one is due at step " << std::min(options_.steps, next)
             << advice << std::endl;
    return OkStatus();
  }

  Status Conclude() {
    if (trace() != nullptr) {
      const Status written = WriteTrace(comm_, trace_log_, context_.node_rank(), trace_started_,
                                        options_.trace, Now() + stall_limit());
      if (!written.ok()) remarks_ << "train: --trace: " << written.message() << std::endl;
    }
    if (!leads()) return OkStatus();
    if (const Status drawn = DrawChart(); !drawn.ok()) {
      remarks_ << "train: --chart: " << drawn.message() << std::endl;
    }
    DDPRUN_RETURN_IF_ERROR(trainer_->Fetch());
    ledger_->Book(Activity::kOther, Now());
    const Balance balance = ledger_->Total();
    out_ << LedgerTable(balance) << LedgerLine(balance) << std::endl;
    out_ << absl::StrFormat("step=%d loss=%.9g sha256=%s", trainer_->step(), trainer_->loss(),
                            trainer_->ParametersSha256())
         << std::endl;
    return OkStatus();
  }

  Status DrawChart() {
    if (options_.chart.empty()) return OkStatus();
    DDPRUN_ASSIGN_OR_RETURN(const std::vector<StepMetrics> all, ReadMetrics(options_.metrics));
    return WriteFile(options_.chart, DrawLossChart(all));
  }

  const Options& options_;
  Context& context_;
  std::ostream& out_;
  std::ostream& remarks_;
  std::optional<LedgerKeeper> ledger_;  // of the round
  bool ledger_failed_ = false;
  std::optional<SnapshotStore> store_;  // of the round
  Corpus corpus_;
  std::optional<SampleLog> sample_log_;
  std::optional<MetricsWriter> metrics_;
  bool metrics_appended_ = true;  // false if the last attempt failed
  bool snapshot_written_ = true;  // false if the last attempt failed
  bool stopped_ = false;          // this round ended because of a stop notice
  TraceLog trace_log_;
  TimePoint trace_started_;
  Communicator comm_;
  std::optional<Trainer> trainer_;
  bool recovered_ = false;  // the round began with the state of survivors
};

}  // namespace

Status Run(const Options& options, Context& context, std::ostream& out, std::ostream& remarks) {
  return TrainingRun(options, context, out, remarks).Run();
}

}  // namespace ddprun::train

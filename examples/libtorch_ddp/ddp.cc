// Trains a small transformer of LibTorch on all workers of a round, and resumes from the newest snapshot.
// usage: ddprun --nproc-per-node=2 --no-python build/ddp [--steps=N] [--snapshot=FILE] [--accumulate=K]
//
// Each worker has its own sequences; the gradients are averaged over all workers while backward computes. The parameters
// and the data are formulas, so that a program in Python can train the same model: see ddp.py.
#include <ddprun/context.h>
#include <ddprun/torch.h>
#include <torch/torch.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

namespace {

using ddprun::Status;

constexpr int64_t kVocabulary = 31, kWidth = 32, kContext = 12, kBatch = 8;
constexpr int64_t kSnapshotEvery = 10;

struct Options {
  int64_t steps = 100;
  int64_t accumulate = 1;  // backward passes per step
  std::string snapshot;    // empty: no snapshots
};

struct Block : torch::nn::Module {
  Block() {
    norm1 = register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    qkv = register_module("qkv", torch::nn::Linear(kWidth, 3 * kWidth));
    project = register_module("project", torch::nn::Linear(kWidth, kWidth));
    norm2 = register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    up = register_module("up", torch::nn::Linear(kWidth, 4 * kWidth));
    down = register_module("down", torch::nn::Linear(4 * kWidth, kWidth));
  }
  torch::Tensor forward(torch::Tensor x) {
    const auto parts = qkv(norm1(x)).chunk(3, -1);
    torch::Tensor weights = torch::matmul(parts[0], parts[1].transpose(-2, -1)) / std::sqrt(double(kWidth));
    const torch::Tensor later = torch::ones({kContext, kContext}, torch::kBool).triu(1);
    weights = torch::softmax(weights.masked_fill(later, -1e9), -1);
    x = x + project(torch::matmul(weights, parts[2]));
    return x + down(torch::relu(up(norm2(x))));
  }
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  torch::nn::Linear qkv{nullptr}, project{nullptr}, up{nullptr}, down{nullptr};
};

struct Model : torch::nn::Module {
  Model() {
    tokens = register_module("tokens", torch::nn::Embedding(kVocabulary, kWidth));
    places = register_module("places", torch::nn::Embedding(kContext, kWidth));
    first = register_module("first", std::make_shared<Block>());
    second = register_module("second", std::make_shared<Block>());
    head = register_module("head", torch::nn::Linear(kWidth, kVocabulary));
    // Element i of parameter p is 0.1 sin(i + p); gains of norms keep 1.
    const torch::NoGradGuard no_grad;
    int64_t p = 0;
    for (auto& item : named_parameters()) {
      torch::Tensor values = torch::arange(item.value().numel(), torch::kDouble) + double(++p);
      values = 0.1 * torch::sin(values);
      if (item.key().find("norm") != std::string::npos)
        values = values * 0 + (item.key().back() == 't' ? 1 : 0);
      item.value().copy_(values.view(item.value().sizes()));
    }
  }
  torch::Tensor forward(const torch::Tensor& sequence) {
    const torch::Tensor x = tokens(sequence) + places(torch::arange(kContext));
    return head(second->forward(first->forward(x)));
  }
  torch::nn::Embedding tokens{nullptr}, places{nullptr};
  std::shared_ptr<Block> first, second;
  torch::nn::Linear head{nullptr};
};

// The sequences of one backward pass, [kBatch, kContext + 1]: element t of sequence s is s + (s modulo 3 + 1) t, modulo the
// vocabulary.
torch::Tensor BatchOf(int64_t number) {
  const torch::Tensor s = torch::arange(number * kBatch, (number + 1) * kBatch).unsqueeze(1);
  const torch::Tensor t = torch::arange(kContext + 1).unsqueeze(0);
  return (s + (s % 3 + 1) * t) % kVocabulary;
}

// Writes the model, the optimizer and the step, or reads them if the file exists.
void Save(const std::string& path, Model& model, torch::optim::SGD& sgd, int64_t step) {
  torch::serialize::OutputArchive archive, parameters, optimizer;
  model.save(parameters);
  sgd.save(optimizer);
  archive.write("model", parameters);
  archive.write("optimizer", optimizer);
  archive.write("step", torch::tensor(step));
  archive.save_to(path + ".new");
  std::filesystem::rename(path + ".new", path);  // a reader sees the old file or the new one
}

int64_t Load(const std::string& path, Model& model, torch::optim::SGD& sgd) {
  if (path.empty() || !std::filesystem::exists(path)) return 0;
  torch::serialize::InputArchive archive, parameters, optimizer;
  archive.load_from(path);
  archive.read("model", parameters);
  archive.read("optimizer", optimizer);
  model.load(parameters);
  sgd.load(optimizer);
  torch::Tensor step;
  archive.read("step", step);
  return step.item<int64_t>();
}

Status Train(ddprun::Context& context, const Options& options) {
  DDPRUN_ASSIGN_OR_RETURN(ddprun::Communicator world, context.Connect());
  Model model;
  torch::optim::SGD sgd(model.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  // Every worker reads the snapshot, because each has an optimizer.
  const int64_t first = Load(options.snapshot, model, sgd) + 1;
  if (first > 1 && world.rank() == 0)
    std::printf("resumed after step %lld\n", static_cast<long long>(first - 1));
  DDPRUN_ASSIGN_OR_RETURN(auto ddp, ddprun::TorchDataParallel::Create(world, model));

  for (int64_t step = first; step <= options.steps; ++step) {
    ddp->Begin();
    double loss = 0;
    for (int64_t pass = 0; pass < options.accumulate; ++pass) {
      ddp->set_communicates(pass + 1 == options.accumulate);
      const torch::Tensor batch =
          BatchOf(((step - 1) * options.accumulate + pass) * world.size() + world.rank());
      const torch::Tensor logits = model.forward(batch.slice(1, 0, kContext));
      torch::Tensor result = torch::nn::functional::cross_entropy(logits.reshape({-1, kVocabulary}),
                                                                  batch.slice(1, 1).reshape({-1}));
      result = result / double(options.accumulate);
      result.backward();
      loss += result.item<double>();
    }
    DDPRUN_RETURN_IF_ERROR(ddp->Finish());
    sgd.step();
    const ddprun::Tensor view{&loss, 1, ddprun::DType::kFloat64};
    DDPRUN_RETURN_IF_ERROR(world.AllReduce(view, ddprun::ReduceOp::kMean).Wait());
    if (world.rank() == 0) {
      std::printf("step %lld loss %.9f\n", static_cast<long long>(step), loss);
      std::fflush(stdout);
      if (!options.snapshot.empty() && step % kSnapshotEvery == 0) Save(options.snapshot, model, sgd, step);
    }
    context.Report(step);
  }
  return ddprun::OkStatus();
}

// Reads a whole number of at least 1, without other characters.
bool ParseCount(const std::string& text, int64_t* count) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *count);
  return error == std::errc() && rest == end && *count >= 1;
}

bool ParseFlag(const std::string& argument, Options* options) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos) return false;
  const std::string name = argument.substr(0, equals), value = argument.substr(equals + 1);
  if (name == "--steps") return ParseCount(value, &options->steps);
  if (name == "--accumulate") return ParseCount(value, &options->accumulate);
  if (name != "--snapshot") return false;
  options->snapshot = value;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  torch::set_num_threads(1);
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (ParseFlag(argv[i], &options)) continue;
    std::fprintf(stderr, "ddp: bad argument: %s (--steps=N, --accumulate=N, --snapshot=FILE; N >= 1)\n",
                 argv[i]);
    return 2;
  }
  ddprun::StatusOr<ddprun::Context> context = ddprun::Context::FromEnvironment();
  const Status status = context.ok() ? Train(*context, options) : context.status();
  if (!status.ok()) std::fprintf(stderr, "ddp: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

// A process that runs the commands of sdk_test.py, which compares the results with Python's.
//
// tools sampler           lines of "size replicas rank shuffle seed epoch drop_last batch" on
// stdin;
//                         a line of indices for each, from next() and from indices()
// tools save FILE         trains a little and saves; tools load FILE prints the loaded values
// tools errors            the texts of errors, one a line
// tools read FILE         the result of load_file()
// tools snapshots FOLDER KEEP DO…   "save:EPOCH" or "load", by one process without a launcher
// tools local-rank --local-rank=N   joins a group after reading its arguments
#include <iostream>
#include <string>

#include <torch/nn.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "muster/checkpoint.h"
#include "muster/collectives.h"
#include "muster/distributed_data_parallel.h"
#include "muster/distributed_sampler.h"
#include "muster/process_group.h"

namespace muster::testing {
namespace {

void print_indices(const std::vector<std::size_t>& indices) {
  for (const std::size_t index : indices)
    std::cout << index << ' ';
  std::cout << '\n';
}

int run_sampler() {
  std::size_t size = 0;
  std::size_t batch = 0;
  DistributedSamplerOptions options{.replicas = 0, .rank = 0};
  std::int64_t epoch = 0;
  while (std::cin >> size >> *options.replicas >> *options.rank >> options.shuffle >>
         options.seed >> epoch >> options.drop_last >> batch) {
    DistributedSampler sampler(size, options);
    sampler.set_epoch(epoch);
    sampler.reset();
    std::vector<std::size_t> walked;
    while (const auto some = sampler.next(batch)) {
      if (some->empty() || some->size() > batch) throw Error("a batch of a wrong size");
      walked.insert(walked.end(), some->begin(), some->end());
    }
    print_indices(walked);
    print_indices(sampler.indices());
    if (sampler.num_samples() != walked.size()) throw Error("num_samples() is wrong");
  }
  return 0;
}

// No bias before the normalisation: its gradient would be rounding noise, which Adam amplifies.
torch::nn::Sequential make_net() {
  return torch::nn::Sequential(torch::nn::Linear(torch::nn::LinearOptions(3, 4).bias(false)),
                               torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 2));
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& kind,
                                                        const torch::nn::Sequential& net) {
  const auto parameters = net->parameters();
  if (kind == "adam")
    return std::make_unique<torch::optim::Adam>(
        parameters, torch::optim::AdamOptions(0.01).betas({0.8, 0.95}).amsgrad(true));
  if (kind == "adamw")
    return std::make_unique<torch::optim::AdamW>(
        parameters, torch::optim::AdamWOptions(0.02).weight_decay(0.1));
  return std::make_unique<torch::optim::SGD>(parameters,
                                             torch::optim::SGDOptions(0.1).momentum(0.5));
}

void train(torch::nn::Sequential& net, torch::optim::Optimizer& optimizer, int steps) {
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    net->forward(torch::arange(12, torch::kFloat32).reshape({4, 3}).sin())
        .square()
        .mean()
        .backward();
    optimizer.step();
  }
}

// {"model": …, "optimizer": …, "epoch": 5, "note": "text", "more": [1, (2.5, None, True)],
//  "conjugate": [1-2i], "negated": [-3]}
c10::IValue everything(const torch::nn::Sequential& net, const torch::optim::Optimizer& optimizer) {
  c10::impl::GenericDict all(c10::StringType::get(), c10::AnyType::get());
  all.insert("model", module_state(*net));
  all.insert("optimizer", optimizer_state(optimizer));
  all.insert("epoch", std::int64_t{5});
  all.insert("note", "text");
  c10::impl::GenericList more(c10::AnyType::get());
  more.push_back(std::int64_t{1});
  more.push_back(c10::ivalue::Tuple::create({2.5, c10::IValue(), true}));
  all.insert("more", more);
  all.insert("conjugate", torch::complex(torch::ones(1), torch::full(1, 2.0)).conj());
  all.insert("negated", torch::_neg_view(torch::full(1, 3.0)));
  return all;
}

int run_save(const std::string& kind, const std::string& file) {
  torch::manual_seed(5);
  auto net = make_net();
  const auto optimizer = make_optimizer(kind, net);
  train(net, *optimizer, 3);
  save_file(file, everything(net, *optimizer));
  train(net, *optimizer, 2);
  save_file(file + ".later", everything(net, *optimizer));
  return 0;
}

int run_load(const std::string& kind, const std::string& file) {
  const auto all = load_file(file).toGenericDict();
  auto net = make_net();
  const auto optimizer = make_optimizer(kind, net);
  load_module_state(*net, all.at("model"));
  load_optimizer_state(*optimizer, all.at("optimizer"));
  if (all.at("epoch").toInt() != 5 || all.at("note").toStringRef() != "text")
    throw Error("the rest is not what was saved");
  train(net, *optimizer, 2);
  save_file(file + ".resumed", everything(net, *optimizer));
  return 0;
}

int run_read(const std::string& file) {
  const c10::IValue value = load_file(file);
  std::cout << value.tagKind() << '\n';
  if (value.isList())
    for (const c10::IValue& part : value.toListRef())
      if (part.isTensor()) std::cout << part.toTensor().sizes() << '\n';
  return 0;
}

// On the stack, as no shared_ptr holds it.
struct StackNet : torch::nn::Module {
  StackNet() : layer(3, 2) {
    register_module("layer", layer);
    scale = register_parameter("scale", torch::ones({1}));
  }
  torch::nn::Linear layer;
  torch::Tensor scale;
};

void load_snapshot(Checkpoints& checkpoints, StackNet& net, torch::optim::Optimizer& optimizer) {
  const torch::NoGradGuard no_grad;
  net.scale.fill_(-1);
  const auto done = checkpoints.load(net, &optimizer);
  if (!done) return void(std::cout << "nothing\n");
  std::cout << "epoch " << done->epoch << ", scale " << net.scale.item<float>() << ", refused "
            << done->refused.size() << '\n';
}

int run_snapshots(const std::vector<std::string>& words) {
  const ProcessGroupScope job("gloo");
  StackNet net;
  torch::optim::SGD optimizer({net.layer->weight, net.layer->bias, net.scale},
                              torch::optim::SGDOptions(0.1).momentum(0.9));
  Checkpoints checkpoints({.folder = words[2], .keep = std::stoi(words[3])});
  for (std::size_t i = 4; i < words.size(); ++i) {
    try {
      if (words[i] == "load") {
        load_snapshot(checkpoints, net, optimizer);
        continue;
      }
      if (words[i] == "pause") {  // Waits for a line of input.
        std::cout << "paused\n" << std::flush;
        std::string line;
        std::getline(std::cin, line);
        continue;
      }
      const int epoch = std::stoi(words[i].substr(words[i].find(':') + 1));
      {
        const torch::NoGradGuard no_grad;
        net.scale.fill_(epoch);
      }
      checkpoints.save(net, &optimizer, epoch);
      std::cout << "saved\n";
    } catch (const Error& error) {
      std::cout << "error, scale " << net.scale.item<float>() << ": " << error.what() << '\n';
    }
  }
  return 0;
}

int run_local_rank(int argc, const char* const* argv) {
  const int parsed = read_environment(argc, argv).local_rank;
  local_device();
  init_process_group("gloo");
  std::cout << parsed << ' ' << environment().local_rank << '\n';
  barrier();
  destroy_process_group();
  return 0;
}

template <class Expected = Error, class Call>
void print_error(const char* what, Call call) {
  std::string text = "no error";
  try {
    call();
  } catch (const Expected& error) {
    text = error.what();
  }
  std::cout << what << ": " << text << '\n';
}

int run_errors() {
  print_error("before init", [] { barrier(); });
  print_error("environment", [] { environment(); });
  print_error("sampler without group", [] { DistributedSampler sampler(5); });
  print_error("backend", [] { init_process_group("mpi"); });
  print_error("pair", [] { init_process_group("cpu:nccl"); });
  // Without a GPU, the first of PyTorch's two NCCL classes throws LibTorch's own error.
  print_error<std::exception>("nccl", [] { init_process_group("nccl"); });
  print_error<std::exception>("mixed nccl", [] { init_process_group("cpu:gloo,cuda:nccl"); });
  print_error("timeout", [] { init_process_group("gloo", {.timeout = std::chrono::seconds(0)}); });
  print_error("device", [] { init_process_group("gloo", {.device = torch::Device("cpu")}); });
  if (is_initialized()) throw Error("an error left a process group behind");

  init_process_group("gloo");
  print_error("twice", [] { init_process_group("gloo"); });
  print_error("no member", [] { broadcast(torch::ones(1), 1); });
  print_error("out of range", [] { new_group({0, 1}); });
  print_error("double", [] { new_group({0, 0}); });
  print_error("empty", [] { new_group({}); });
  print_error("no rank", [] { DistributedSampler sampler(5, {.replicas = 2, .rank = 2}); });
  print_error("no data", [] { DistributedSampler sampler(0); });
  auto net = make_net();
  print_error("optimizer kind", [&net] {
    optimizer_state(torch::optim::RMSprop(net->parameters(), torch::optim::RMSpropOptions(0.1)));
  });
  print_error("state", [&net] {
    torch::nn::Sequential other(torch::nn::Linear(3, 5), torch::nn::ReLU());
    load_module_state(*net, module_state(*other));
  });
  print_error("keep", [] { Checkpoints checkpoints({.folder = "x", .keep = 0}); });
  print_error("to oneself", [] { send(torch::ones(1), 0); });
  print_error("epoch", [&net] { Checkpoints({.folder = "x"}).save(*net, nullptr, -1); });
  print_error("input device", [&net] {
    DistributedDataParallel<torch::nn::SequentialImpl> ddp(net,
                                                           {.device = torch::Device("cuda:0")});
  });
  print_error("cpu device", [&net] {
    DistributedDataParallel<torch::nn::SequentialImpl> ddp(net, {.device = torch::Device("cpu")});
  });
  for (torch::Tensor& parameter : net->parameters())
    parameter.set_requires_grad(false);
  print_error("nothing to train",
              [&net] { DistributedDataParallel<torch::nn::SequentialImpl> ddp(net); });

  // A group of one process works without a launcher, and works again after it was left.
  torch::Tensor one = torch::ones(2);
  all_reduce(one);
  const c10::IValue object = broadcast_object(c10::IValue("text"), 0);
  destroy_process_group();
  init_process_group();
  print_error("again", [] { barrier(); });
  destroy_process_group();
  destroy_process_group();
  std::cout << "sum: " << one.sum().item<float>() << ", object: " << object.toStringRef() << '\n';
  return 0;
}

int run(int argc, const char* const* argv) {
  const std::vector<std::string> words(argv, argv + argc);
  if (words.size() == 3 && words[1] == "read") return run_read(words[2]);
  if (words.size() > 4 && words[1] == "snapshots") return run_snapshots(words);
  if (words.size() == 3 && words[1] == "local-rank") return run_local_rank(argc, argv);
  if (words.size() == 2 && words[1] == "sampler") return run_sampler();
  if (words.size() == 2 && words[1] == "errors") return run_errors();
  if (words.size() == 4 && words[1] == "save") return run_save(words[2], words[3]);
  if (words.size() == 4 && words[1] == "load") return run_load(words[2], words[3]);
  throw Error("usage: tools sampler, errors, save KIND FILE, load KIND FILE, read FILE, ...");
}

}  // namespace
}  // namespace muster::testing

int main(int argc, char** argv) {
  try {
    return muster::testing::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}

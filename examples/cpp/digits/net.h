// The network of the digits examples, and the digits as tensors.
#pragma once

#include <torch/nn.h>

#include "idx.h"

namespace digits {

constexpr int kClasses = 10;
constexpr std::int64_t kSmallestSide = 4;  // Two poolings quarter it: one pixel must be left.

// Three convolutions and one linear layer, for images of any size from 4x4 on. The network is
// Cloneable because torch::nn::parallel::data_parallel clones it for each GPU.
struct DigitsNetImpl : torch::nn::Cloneable<DigitsNetImpl> {
  DigitsNetImpl(std::int64_t rows, std::int64_t columns)
      : image_rows(rows), image_columns(columns) {
    reset();
  }
  void reset() override {
    using torch::nn::Conv2d;
    using torch::nn::Conv2dOptions;
    using torch::nn::MaxPool2d;
    using torch::nn::ReLU;
    // push_back() fixes the order in which the layers take random weights. C++ may evaluate the
    // arguments of a single constructor call in any order.
    features = torch::nn::Sequential();
    features->push_back(Conv2d(Conv2dOptions(1, 32, 3).padding(1)));
    features->push_back(ReLU());
    features->push_back(Conv2d(Conv2dOptions(32, 64, 3).padding(1)));
    features->push_back(ReLU());
    features->push_back(MaxPool2d(2));
    features->push_back(Conv2d(Conv2dOptions(64, 64, 3).padding(1)));
    features->push_back(ReLU());
    features->push_back(MaxPool2d(2));
    features->push_back(torch::nn::Flatten());
    classify = torch::nn::Linear(64 * (image_rows / 4) * (image_columns / 4), kClasses);
    register_module("features", features);
    register_module("classify", classify);
  }
  torch::Tensor forward(const torch::Tensor& images) { return classify(features->forward(images)); }

  std::int64_t image_rows;
  std::int64_t image_columns;
  torch::nn::Sequential features{nullptr};
  torch::nn::Linear classify{nullptr};
};
TORCH_MODULE(DigitsNet);

struct Dataset {
  torch::Tensor images;  // float32, N x 1 x rows x columns, 0 to 1.
  torch::Tensor labels;  // int64, N.
};

inline Dataset to_dataset(Digits& digits, torch::Device device) {
  const auto bytes = torch::dtype(torch::kUInt8);
  const auto pixels = torch::from_blob(digits.pixels.data(),
                                       {digits.count(), 1, digits.rows, digits.columns}, bytes);
  const auto labels = torch::from_blob(digits.labels.data(), {digits.count()}, bytes);
  return {(pixels.to(torch::kFloat32) / 255).to(device), labels.to(torch::kInt64).to(device)};
}

}  // namespace digits

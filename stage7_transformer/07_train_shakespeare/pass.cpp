#include "stage7_transformer/07_train_shakespeare/pass.h"

#include <algorithm>

#include "stage7_transformer/06_transformer_block/rows.h"
#include "stage7_transformer/07_train_shakespeare/bf16_pass.h"

namespace train_shakespeare {

Pass::Pass(const ModelSizes& wanted, size_t vocabulary, const transformer_block::Mode& how)
    : BatchSizes{wanted},
      mode(how),
      tokens(rows()),
      labels(rows()),
      statistics(2 * rows()),
      norm(rows() * wanted.width),
      logits(rows() * vocabulary),
      grad_logits(rows() * vocabulary),
      loss(1),
      losses(rows()),
      workspaces{transformer_block::Workspace(shape(wanted.batch)),
                 transformer_block::Workspace(shape(wanted.batch))},
      norm_workspace(rows(), wanted.width),
      embedding_workspace(embedding_shape(wanted.batch, vocabulary)),
      head_workspace(rows(), wanted.width, vocabulary),
      head_sums(transformer_block::sums_of({head_task({}, vocabulary)}, rows())),
      norm_parts(transformer_block::norm_parts_of_rows(shape(wanted.batch))) {
  for (size_t layer = 0; layer < wanted.layers; ++layer)
    kept.push_back(
        std::make_unique<transformer_block::SavedActivations>(shape(wanted.batch), mode));
  for (size_t i = 0; i <= wanted.layers; ++i) {
    x.emplace_back(rows() * wanted.width);
    grad_x.emplace_back(rows() * wanted.width);
  }
}

gemm::Product head_product(float* logits, const float* norm, const float* w, size_t rows,
                           size_t width, size_t vocabulary) {
  gemm::Product p;
  p.layout = gemm::Layout::NT, p.M = rows, p.N = vocabulary, p.K = width;
  p.a = norm, p.lda = width, p.b = w, p.ldb = width, p.c = logits, p.ldc = vocabulary;
  return p;
}

template <class P>
double loss_of(const Model& model, P& pass, const Text& text, size_t most) {
  const size_t T = pass.sizes.context, pieces = std::min((text.length - 1) / T, most);
  double sum = 0;
  for (size_t first = 0; first < pieces; first += pass.sizes.batch) {
    const size_t batch = std::min(pass.sizes.batch, pieces - first);
    launch_gather(pass.tokens.data(), pass.labels.data(), text, batch, T,
                  Consecutive{first * T, T});
    forward(model, pass, batch, nullptr);
    losses::launch_loss_of_logits(pass.loss.data(), pass.logits.data(),
                                  {pass.labels.data(), batch * T, model.vocabulary()},
                                  pass.losses.workspace());
    sum += static_cast<double>(pass.loss.to_host()[0]) * static_cast<double>(batch);
  }
  return sum / static_cast<double>(pieces);
}
template double loss_of(const Model&, Pass&, const Text&, size_t);
template double loss_of(const Model&, Bf16Pass&, const Text&, size_t);

}  // namespace train_shakespeare

"""The references of train_sales."""

import numpy as np

from inputs import permute, random, wide


def sales_network(x, target, w1, b1, w2, b2):
    """The loss of Linear(24, 32), ReLU, Linear(32, 1) and its gradients, in the order of the
    arguments."""
    sums = x @ w1.T + b1
    hidden = np.maximum(sums, 0)
    error = hidden @ w2 + b2 - target
    grad_y = 2 * error / len(x)
    grad_sums = np.where(sums > 0, grad_y[:, None] * w2, 0)
    return np.mean(error**2), (grad_sums.T @ x, grad_sums.sum(axis=0), hidden.T @ grad_y,
                               grad_y.sum())


def references():
    """Sales as features, and the losses of 20 steps of training with SGD and with Adam."""
    generator = np.random.default_rng(57)
    sales, categories = 977, 17  # the last category has no column
    first, last = np.datetime64("0001-01-01"), np.datetime64("9999-12-31")
    days = generator.integers((first - np.datetime64("1970-01-01")).astype(int),
                              (last - np.datetime64("1970-01-01")).astype(int), sales)
    days[::2] = generator.integers(18000, 21000, len(days[::2]))
    days[:8] = [(np.datetime64(date) - np.datetime64("1970-01-01")).astype(int) for date in
                ("0001-01-01", "1900-02-28", "1900-03-01", "2000-02-29", "2024-02-29", "2024-12-31",
                 "2023-12-31", "2024-01-01")]
    category = generator.integers(0, categories, sales)
    quantity = generator.integers(1, 25, sales).astype(np.float32)
    price = np.exp(generator.normal(3, 1, sales)).astype(np.float32)
    mean, scale = np.float32([4, 3, 90, 75]), np.float32([0.25, 1, 0.01, 0.0125])

    dates = days.astype("datetime64[D]")
    years = dates.astype("datetime64[Y]")
    length = ((years + 1).astype("datetime64[D]") - years.astype("datetime64[D]")).astype(int)
    angle = 2 * np.pi * (dates - years.astype("datetime64[D]")).astype(int) / length
    measures = np.stack([wide(quantity)[0], np.log1p(wide(price)[0]),
                         wide(quantity)[0] * wide(price)[0]], axis=1)
    features = np.column_stack([
        category[:, None] == np.arange(16), np.sin(angle), np.cos(angle), np.sin(2 * angle),
        np.cos(2 * angle), ~np.is_busday(dates), (measures - wide(mean)[0][:3]) * wide(scale)[0][:3]])

    rows, inputs, hidden, batch, seed, steps = 301, 24, 32, 64, 7, 20
    x, target = random(generator, (rows, inputs)), random(generator, rows)
    start = [random(generator, (hidden, inputs)) / 4, random(generator, hidden) / 4,
             random(generator, hidden) / 4, random(generator, 1) / 4]
    arrays = {"days": days, "category": category, "quantity": quantity, "price": price,
              "mean": mean, "scale": scale, "features": features, "x": x, "target": target,
              "w1": start[0], "b1": start[1], "w2": start[2], "b2": start[3]}
    wide_x, wide_target = wide(x, target)
    for name, rate in (("sgd", 0.01), ("adam", 0.005)):
        weights = list(wide(*start))
        states = [(np.zeros_like(w), np.zeros_like(w)) for w in weights]
        curve = []
        for step in range(steps):
            epoch, place = divmod(step, rows // batch)
            chosen = permute(np.arange(place * batch, (place + 1) * batch), rows, seed, epoch)
            loss, gradients = sales_network(wide_x[chosen], wide_target[chosen], *weights)
            curve.append(loss)
            for k, gradient in enumerate(gradients):
                if name == "sgd":
                    weights[k] = weights[k] - rate * gradient
                    continue
                m = 0.9 * states[k][0] + 0.1 * gradient
                v = 0.999 * states[k][1] + 0.001 * gradient**2
                states[k] = m, v
                m, v = m / (1 - 0.9**(step + 1)), v / (1 - 0.999**(step + 1))
                weights[k] = weights[k] - rate * m / (np.sqrt(v) + 1e-8)
        arrays[f"{name}_losses"] = np.array(curve)
    return arrays

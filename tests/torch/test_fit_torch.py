"""fit and evaluate on PyTorch's tensors and loaders; the loss of evaluate is PyTorch's."""

import numpy as np
import pytest
import torch
from session_helpers import BATCH, data, held, session
from torch.utils.data import DataLoader, TensorDataset

import pyqfw as q

X, Y = data(3 * BATCH + 5)
TX, TY = torch.from_numpy(X), torch.from_numpy(Y)


def loader(**options):
    return DataLoader(TensorDataset(TX, TY), batch_size=BATCH, **options)


def test_tensors():
    net, twin = session("int8"), session("int8")
    history = q.fit(net, TX, TY, epochs=2, validation=(TX, TY))
    assert history.val_loss == q.fit(twin, X, Y, epochs=2, validation=(X, Y)).val_loss
    assert held(net) == held(twin)
    q.fit(net, TX.clone().requires_grad_(), TY, epochs=1)  # its graph is left alone
    q.fit(twin, X, Y, epochs=1)
    assert held(net) == held(twin)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader(workers):
    """Its processes fork while the bar is there."""
    net, twin = session("int8"), session("int8")
    q.fit(net, loader(num_workers=workers), epochs=2, validation=loader(), progress=True)
    q.fit(twin, X, Y, epochs=2, shuffle=False)
    assert held(net) == held(twin)
    assert q.evaluate(net, loader(num_workers=workers)) == q.evaluate(net, X, Y)


def test_evaluate():
    net = session("full_sym")
    q.fit(net, X, Y, epochs=2)
    z = torch.from_numpy(net.predict(X)).double()
    found = q.evaluate(net, X, Y)
    assert found["loss"] == pytest.approx(
        torch.nn.functional.cross_entropy(z, TY).item(), rel=1e-12
    )
    assert found["accuracy"] == np.mean((z.argmax(1) == TY).numpy())

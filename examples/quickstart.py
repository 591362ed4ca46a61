import numpy as np
from sklearn.datasets import load_digits

import pyqfw as q
from pyqfw import nn

x, y = load_digits(return_X_y=True)
x = (x / 16).astype(np.float32)

model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
plan = q.compile(
    model,
    input_shape=(64,),
    loss=nn.CrossEntropyLoss(),
    optimizer=q.optim.SGD(lr=0.05, momentum=0.9),
    policy=q.Policy.int8(),  # weights, wires, errors, gradients and momentum: 8 bits
    batch=32,
)
net = q.Session(plan)
twin = net.recompile(policy=q.Policy.float32())  # the same initial weights

for name, n in (("int8", net), ("float32", twin)):
    q.fit(n, x[:1347], y[:1347], epochs=20, validation=(x[1347:], y[1347:]))  # bar, History
    score = q.evaluate(n, x[1347:], y[1347:])
    print(f"{name}: {score['accuracy']:.1%} of 450 digits, {n.plan.arena_bytes} bytes of RAM")
print(net.tensor("0.weight"), net.tensor("0.weight").codes[0, :4])

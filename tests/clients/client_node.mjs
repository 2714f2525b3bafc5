// @kubernetes/client-node: one pod from creation to eviction, through an informer, every kind of
// patch, streams and metrics. Prints one JSON object with what was seen.
//
//     node client_node.mjs KUBECONFIG CLIENT_NODE_DIRECTORY IMAGE
import { once } from 'node:events';
import net from 'node:net';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import { pathToFileURL } from 'node:url';

const [, , kubeconfig, directory, image] = process.argv;
const k8s = await import(
  pathToFileURL(path.join(directory, 'node_modules/@kubernetes/client-node/dist/index.js')).href
);

const namespace = 'default';
const name = 'client-node';
const seen = {};

const config = new k8s.KubeConfig();
config.loadFromFile(kubeconfig);
const core = config.makeApiClient(k8s.CoreV1Api);

function collected() {
  const stream = new PassThrough();
  stream.text = '';
  stream.on('data', (data) => (stream.text += data));
  stream.on('error', () => undefined); // The end of a stream that this program aborts.
  return stream;
}

async function until(condition, what) {
  const deadline = Date.now() + 60_000;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`not in time: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

// Informer and creation.
const events = [];
const pods = () =>
  core.listNamespacedPod({ namespace, fieldSelector: `metadata.name=${name}` });
const informer = k8s.makeInformer(
  config,
  `/api/v1/namespaces/${namespace}/pods`,
  pods,
  undefined,
  `metadata.name=${name}`,
);
for (const kind of ['add', 'update', 'delete']) informer.on(kind, () => events.push(kind));
await informer.start();
const command = ['sh', '-c', 'while echo tick; do sleep 1; done'];
const server = [
  'sh',
  '-c',
  'while :; do printf "HTTP/1.0 200 OK\\r\\n\\r\\nhello\\n" | nc -l -p 8000; done',
];
const containers = [
  { name: 'main', image, command },
  { name: 'web', image, command: server },
];
await core.createNamespacedPod({
  namespace,
  body: { metadata: { name }, spec: { containers, terminationGracePeriodSeconds: 0 } },
});
await until(() => informer.get(name, namespace)?.status?.phase === 'Running', 'the pod running');

// Every kind of patch.
const kinds = k8s.PatchStrategy;
const label = (key) => ({ metadata: { labels: { [key]: '1' } } });
const patches = [
  [kinds.MergePatch, label('merge')],
  [kinds.StrategicMergePatch, label('strategic')],
  [kinds.JsonPatch, [{ op: 'add', path: '/metadata/labels/json', value: '1' }]],
  [kinds.ServerSideApply, { apiVersion: 'v1', kind: 'Pod', metadata: { name, ...label('apply').metadata } }],
];
for (const [kind, body] of patches) {
  const fieldManager = kind === kinds.ServerSideApply ? 'test' : undefined;
  const options = k8s.setHeaderOptions('Content-Type', kind);
  const patched = await core.patchNamespacedPod({ name, namespace, body, fieldManager }, options);
  seen.labels = Object.keys(patched.metadata.labels).sort();
}

// Streams.
const exec = new k8s.Exec(config);
async function run(command, input = null) {
  const [out, errors] = [collected(), collected()];
  const status = await new Promise((resolve, reject) => {
    exec
      .exec(namespace, name, 'main', command, out, errors, input, false, resolve)
      .catch(reject);
  });
  const code = status.details?.causes?.find((cause) => cause.reason === 'ExitCode')?.message;
  return [out.text, errors.text, status.status, code ?? '0'];
}
seen.failed = await run(['sh', '-c', 'echo out; echo err >&2; exit 3']);
const input = new PassThrough();
input.end('to the end');
seen.copied = await run(['cat'], input);

const attached = collected();
const socket = await new k8s.Attach(config).attach(
  namespace, name, 'main', attached, null, null, false,
);
await until(() => attached.text.includes('tick'), 'output by attach');
socket.close();

const log = collected();
// The client ends the stream with the error of the abort.
process.on('uncaughtException', (error) => {
  if (error.name !== 'AbortError') throw error;
});
const following = await new k8s.Log(config).log(namespace, name, 'main', log, { follow: true });
await until(() => log.text.split('\n').length > 3, 'lines that are followed');
following.abort();

const forward = new k8s.PortForward(config);
const listener = net.createServer((connection) =>
  forward.portForward(namespace, name, [8000], connection, null, connection),
);
listener.listen(0, '127.0.0.1');
await once(listener, 'listening');
const connection = net.connect(listener.address().port, '127.0.0.1');
let answer = '';
connection.on('data', (data) => (answer += data));
connection.on('error', () => undefined);
connection.write('GET / HTTP/1.0\r\n\r\n');
seen.forwarded = await until(() => answer.includes('hello') && answer.split('\r\n')[0], 'an answer');
connection.destroy();
listener.close();

// Metrics, eviction.
const metrics = new k8s.Metrics(config);
const usage = await until(
  async () => (await metrics.getPodMetrics(namespace)).items.find((pod) => pod.metadata.name === name),
  'metrics of the pod',
);
seen.measured = usage.containers.map((container) => container.name).sort();
await core.createNamespacedPodEviction({ name, namespace, body: { metadata: { name, namespace } } });
await until(() => events.includes('delete'), 'the deletion');
seen.events = [...new Set(events)].sort();
const refused = await core.readNamespacedPod({ name, namespace }).catch((error) => error);
seen.gone = [refused.code, JSON.parse(refused.body).reason];
console.log(JSON.stringify(seen));
process.exit(0);

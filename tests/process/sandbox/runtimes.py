"""Programs that use what real plugins use; each says "fine" when all of it worked."""

from __future__ import annotations

PYTHON = """
import asyncio, concurrent.futures, multiprocessing, os, pathlib, socket, sqlite3, ssl, subprocess, sys, tempfile
import threading, time

def double(number):
    return 2 * number

def threads():
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(double, range(8))) == [0, 2, 4, 6, 8, 10, 12, 14]
    timer = threading.Timer(0, int)
    timer.start()
    timer.join()

def processes():
    assert subprocess.run(["sh", "-c", "echo $((6 * 7)) | cat"], capture_output=True).stdout == b"42\\n"
    assert subprocess.run(["true"], preexec_fn=os.setsid, close_fds=False).returncode == 0
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(1) as pool:
        assert pool.map(double, [21]) == [42]
    ours, theirs = spawn.Pipe()
    theirs.send("over a socket pair")
    assert ours.recv() == "over a socket pair"

async def served():
    async def answer(reader, writer):
        writer.write((await reader.readline()).upper())
        writer.close()
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hello\\n")
        assert await reader.read() == b"HELLO\\n"
        writer.close()
        await writer.wait_closed()
    child = await asyncio.create_subprocess_exec("cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert await child.communicate(b"piped") == (b"piped", None)
    assert await asyncio.to_thread(double, 4) == 8

def files():
    with tempfile.TemporaryDirectory() as name:
        database = sqlite3.connect(pathlib.Path(name, "x.db"))
        database.execute("pragma journal_mode = wal")
        database.execute("create table t (x)")
        database.close()

if __name__ == "__main__":
    threads()
    processes()
    files()
    asyncio.run(served())
    socket.getaddrinfo("127.0.0.1", 80)
    ssl.create_default_context()
    for module in sys.argv[1:]:
        asyncio.set_event_loop_policy(__import__(module).EventLoopPolicy())
        asyncio.run(served())
    print("fine")
"""

NODE = """
const { Worker, isMainThread, parentPort } = require('worker_threads');
const { execFileSync, fork, spawn } = require('child_process');
const { once } = require('events');
const fs = require('fs/promises'), net = require('net'), os = require('os'), path = require('path');

if (process.argv[2] === 'forked') {
  process.send('forked');
  process.disconnect();
} else if (!isMainThread) {
  parentPort.postMessage(6 * 7);
} else {
  (async () => {
    const [answer] = await once(new Worker(__filename), 'message');
    if (answer !== 42) throw new Error('worker');
    if (String(execFileSync('sh', ['-c', 'echo a | cat'])) !== 'a\\n') throw new Error('execFileSync');
    const [message] = await once(fork(__filename, ['forked']), 'message');
    if (message !== 'forked') throw new Error('fork');
    const [code] = await once(spawn('true'), 'exit');
    if (code !== 0) throw new Error('spawn');
    const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'x'));
    await fs.writeFile(path.join(folder, 'a'), 'b');
    await fs.cp(path.join(folder, 'a'), path.join(folder, 'c'));
    await fs.rm(folder, { recursive: true });
    const server = net.createServer((socket) => socket.end('hello')).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const [data] = await once(net.connect(server.address().port, '127.0.0.1'), 'data');
    if (String(data) !== 'hello') throw new Error('net');
    server.close();
    require('crypto').scryptSync('a', 'b', 16);
    console.log('fine');
  })();
}
"""

PERL = r"""
use strict;
use IO::Socket::INET;
use File::Temp qw(tempfile);
use Socket;
pipe(my $from, my $to) or die "pipe: $!";
my $child = fork() // die "fork: $!";
if (!$child) { close $from; print {$to} "child\n"; close $to; exit 0 }
close $to;
die "read" unless <$from> eq "child\n";
waitpid($child, 0) == $child or die "waitpid";
die "qx" unless qx(echo 42 | cat) eq "42\n";
socketpair(my $one, my $other, AF_UNIX, SOCK_STREAM, 0) or die "socketpair: $!";
my $server = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1") or die "listen: $!";
IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $server->sockport) or die "connect: $!";
my ($file) = tempfile(UNLINK => 1);
print {$file} "x";
print "fine\n";
"""

SHELL = """
set -eu
trap 'kill $background' EXIT
sleep 60 & background=$!
[ "$(printf 'b\\na\\n' | sort | head -n 1)" = a ]
folder=$(mktemp -d)
(cd "$folder" && echo x >y && ln -s y z && cp -a z w && tar cf - . | tar tf - >/dev/null && chmod 700 y)
rm -r "$folder"
find /usr/bin -maxdepth 1 -name env | xargs ls -l >/dev/null
id >/dev/null && date >/dev/null && uname -a >/dev/null && nice -n 5 true && timeout 5 true
echo fine
"""

//! The clients of a server: they attach a session, and ask. Replies keep the order of the requests.

use rlock::store::zookeeper::jute::Request;

use super::ensemble::Ensemble;
use super::frames::{self, Connect};
use super::server::{Asked, Connection, Input, Message, Origin, Reply, Role, Server, Stage, Wish};
use super::sessions::SESSION_MOVED;
use super::tree::{Answer, Command};
use crate::kernel::Kernel;
use crate::network::{Packet, SocketId};
use crate::node::State;

impl Ensemble {
    /// Takes a packet from the network.
    pub fn take(&mut self, kernel: &mut Kernel, socket: SocketId, packet: Packet) {
        let number = kernel.network.node(socket);
        let server = &mut self.servers[number];
        server.state.answer(kernel, socket, &packet);
        match server.state {
            State::Down => {}
            State::Stopped => server.inbox.push(Input::Packet(socket, packet)),
            State::Up => self.serve(number, socket, packet, kernel),
        }
    }

    pub(super) fn serve(
        &mut self,
        number: usize,
        socket: SocketId,
        packet: Packet,
        kernel: &mut Kernel,
    ) {
        let server = &mut self.servers[number];
        match packet {
            Packet::Open => drop(server.connections.insert(socket, Connection::new())),
            Packet::Bytes(bytes) => {
                if let Some(connection) = server.connections.get_mut(&socket) {
                    connection.input.extend(bytes);
                    self.read(number, socket, kernel);
                }
            }
            Packet::End => {
                // Nothing is read before the session stands, not even the end.
                let waits = |it: &Connection| it.stage == Stage::Attaching;
                match server.connections.get_mut(&socket).filter(|it| waits(it)) {
                    Some(connection) => connection.is_ended = true,
                    None => self.forget(number, socket),
                }
            }
            Packet::Reset => self.forget(number, socket),
        }
    }

    fn forget(&mut self, number: usize, socket: SocketId) {
        let server = &mut self.servers[number];
        server.connections.remove(&socket);
        server.replica.forget(socket);
    }

    /// Reads what a client has written.
    fn read(&mut self, number: usize, socket: SocketId, kernel: &mut Kernel) {
        loop {
            let server = &mut self.servers[number];
            if matches!(server.role, Role::Looking) {
                return server.hang_up(kernel, socket);
            }
            let Some(connection) = server.connections.get_mut(&socket) else {
                return;
            };
            if connection.stage == Stage::Attaching {
                return;
            }
            let Some(frame) = frames::take_first(&mut connection.input) else {
                if connection.is_ended {
                    self.forget(number, socket);
                }
                return;
            };
            self.requests += 1;
            let is_read = if connection.stage == Stage::Fresh {
                frames::connect(&frame).map(|connect| self.attach(number, socket, &connect, kernel))
            } else {
                frames::request(&frame)
                    .map(|(xid, request)| self.ask(number, socket, xid, request, kernel))
            };
            assert!(
                is_read.is_ok(),
                "a request that is not understood: {frame:?}"
            );
        }
    }

    /// A client begins a session, or attaches one.
    fn attach(&mut self, number: usize, socket: SocketId, connect: &Connect, kernel: &mut Kernel) {
        let timeout = self.agreed_timeout(connect.timeout);
        let server = &mut self.servers[number];
        if connect.zxid > server.replica.tree().zxid() {
            return server.hang_up(kernel, socket);
        }
        let is_new = connect.session == 0;
        if is_new {
            self.sessions += 1;
        } else {
            let own = |(_, it): &(_, &Connection)| it.session == connect.session;
            let other = server.connections.iter().find(own);
            if let Some(other) = other.map(|(other, _)| *other) {
                server.hang_up(kernel, other);
            }
        }
        let session = if is_new {
            self.sessions
        } else {
            connect.session
        };
        let Some(connection) = server.connections.get_mut(&socket) else {
            return;
        };
        (connection.session, connection.timeout) = (session, timeout);
        connection.stage = Stage::Attaching;
        if is_new {
            return self.wish(number, socket, Wish::Begin(timeout), kernel);
        }
        if connect.password != frames::password(session) {
            return self.attached(number, socket, session, false, kernel);
        }
        let time = server.time(kernel.now);
        match &mut server.role {
            Role::Looking => {}
            Role::Following(following) => {
                let (leader, link) = (following.leader, following.link);
                let attach = Message::Attach(socket, session, timeout);
                self.tell(number, leader, link, attach, kernel);
            }
            Role::Leading(leading) => {
                let is_there = leading.tracker.touch(session, timeout, time);
                if is_there {
                    leading.tracker.attach(session, number);
                }
                self.attached(number, socket, session, is_there, kernel);
            }
        }
    }

    /// The leader has told whether a session may be attached.
    pub(super) fn attached(
        &mut self,
        number: usize,
        socket: SocketId,
        session: i64,
        is_there: bool,
        kernel: &mut Kernel,
    ) {
        let server = &mut self.servers[number];
        let Some(connection) = server.connections.get_mut(&socket) else {
            return;
        };
        let told = is_there.then_some((session, connection.timeout));
        Server::write(kernel, socket, frames::greeting(told));
        if !is_there {
            return server.hang_up(kernel, socket);
        }
        connection.stage = Stage::Attached;
        self.read(number, socket, kernel);
    }

    /// A client asks for something.
    fn ask(
        &mut self,
        number: usize,
        socket: SocketId,
        xid: i32,
        request: Request,
        kernel: &mut Kernel,
    ) {
        let server = &mut self.servers[number];
        let time = server.time(kernel.now);
        let Some(connection) = server.connections.get_mut(&socket) else {
            return;
        };
        let (session, timeout) = (connection.session, connection.timeout);
        let is_last = request == Request::Close;
        let is_write = is_last || matches!(request, Request::Multi(_) | Request::Container(_));
        let mut reply = Reply::Reads(request.clone());
        match &mut server.role {
            Role::Looking => return,
            Role::Following(following) => drop(following.heard.insert(session, timeout)),
            Role::Leading(leading) => {
                // Of a session that it is ending it hears nothing any more.
                if !leading.tracker.touch(session, timeout, time) {
                    return;
                }
                if !is_write && let Err(code) = leading.tracker.check(session, number) {
                    reply = Reply::Known(Answer::Failed(code), server.replica.tree().zxid());
                }
            }
        }
        if is_write {
            reply = Reply::Waits(self.wishes + 1);
        }
        connection.asked.push_back(Asked {
            xid,
            reply,
            is_last,
        });
        if is_write {
            self.wish(number, socket, Wish::Request(request), kernel);
        } else {
            self.reply(number, socket, kernel);
        }
    }

    /// Brings what a client wants before the leader.
    fn wish(&mut self, number: usize, socket: SocketId, wish: Wish, kernel: &mut Kernel) {
        self.wishes += 1;
        let origin = Origin {
            server: number,
            socket,
            number: self.wishes,
        };
        let server = &self.servers[number];
        let Some(session) = server.connections.get(&socket).map(|it| it.session) else {
            return;
        };
        match &server.role {
            Role::Looking => {}
            Role::Following(following) => {
                let (leader, link) = (following.leader, following.link);
                let wish = Message::Wish(session, wish, origin);
                self.tell(number, leader, link, wish, kernel);
            }
            Role::Leading(_) => self.wishes(number, session, wish, origin, kernel),
        }
    }

    /// The transaction of a client is executed where it asked for it.
    pub(super) fn done(
        &mut self,
        origin: &Origin,
        session: i64,
        command: &Command,
        answer: Answer,
        zxid: i64,
        kernel: &mut Kernel,
    ) {
        let (number, socket) = (origin.server, origin.socket);
        if matches!(command, Command::Begin(_)) {
            return self.attached(number, socket, session, true, kernel);
        }
        let connections = &mut self.servers[number].connections;
        let Some(connection) = connections.get_mut(&socket) else {
            return;
        };
        let is_its =
            |asked: &&mut Asked| matches!(asked.reply, Reply::Waits(of) if of == origin.number);
        if let Some(asked) = connection.asked.iter_mut().find(is_its) {
            asked.reply = Reply::Known(answer, zxid);
            self.reply(number, socket, kernel);
        }
    }

    /// Writes the replies whose turn has come.
    fn reply(&mut self, number: usize, socket: SocketId, kernel: &mut Kernel) {
        let server = &mut self.servers[number];
        while let Some(connection) = server.connections.get_mut(&socket) {
            let is_ready = |asked: &Asked| !matches!(asked.reply, Reply::Waits(_));
            if !connection.asked.front().is_some_and(is_ready) {
                return;
            }
            let Some(asked) = connection.asked.pop_front() else {
                return;
            };
            let (answer, zxid) = match asked.reply {
                Reply::Known(answer, zxid) => (answer, zxid),
                Reply::Reads(request) => {
                    let answer = server.replica.read(socket, &request);
                    (answer, server.replica.tree().zxid())
                }
                Reply::Waits(_) => return,
            };
            if answer == Answer::Failed(SESSION_MOVED) {
                return server.hang_up(kernel, socket);
            }
            Server::write(kernel, socket, frames::reply(asked.xid, zxid, &answer));
            if asked.is_last {
                server.hang_up(kernel, socket);
            }
        }
    }

    /// Closes all connections of a server's clients.
    pub fn disconnect_all(&mut self, number: usize, kernel: &mut Kernel) {
        if self.servers[number].state == State::Up {
            self.servers[number].disconnect(kernel, &Packet::End);
        }
    }
}

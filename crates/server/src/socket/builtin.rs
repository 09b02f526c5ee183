//! The protocol's own events: tokens and channels.

use super::frame::{self, Incoming, reason};
use super::hub::Full;
use super::session::{Session, shorten};
use super::{Application, PLACE, Socket};
use crate::auth::{Grants, TokenError};
use crate::names;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use std::sync::{Arc, PoisonError};
use wire::frame::{Authenticated, KickOut, NamedError, PUBLISH, Response, SetAuthToken, Subscribe};
use wire::{ErrorCode, RoomError};

/// Longest name of a channel, in bytes.
pub const CHANNEL_NAME_BYTES: usize = 128;
/// What the names of rooms' channels begin with.
const ROOM: &str = "room:";

type Answered = Result<Option<Box<RawValue>>, RoomError>;

/// Whether an application's channel may have this name.
///
/// # Errors
/// `bad_request` with what is wrong.
pub(crate) fn check_channel_name(channel: &str) -> Result<(), RoomError> {
    let fault = if channel.is_empty() || channel.len() > CHANNEL_NAME_BYTES {
        format!("a channel's name has 1 to {CHANNEL_NAME_BYTES} bytes, this has {}", channel.len())
    } else if let Err(why) = names::check("the channel's name", channel) {
        why
    } else if channel.starts_with(ROOM) {
        "channels that begin with room: are those of rooms: use the room's calls".to_owned()
    } else {
        return Ok(());
    };
    Err(RoomError::new(ErrorCode::BadRequest, fault))
}

/// The error that answers `#authenticate`, with the mark that the client looks for.
#[derive(Serialize)]
struct BadToken {
    #[serde(flatten)]
    error: NamedError,
    #[serde(rename = "isBadToken")]
    is_bad_token: bool,
}

/// Argument of `#publish`.
#[derive(Deserialize)]
struct Published<'a> {
    channel: String,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

impl<A: Application> Session<A> {
    /// Answers an event of the protocol itself.
    pub(super) fn builtin(&mut self, request: &Incoming<'_>) {
        let refused = |code, message: &str| Err(RoomError::new(code, message));
        let result = match &*request.event {
            PUBLISH => self.publish(request.data),
            "#subscribe" => self.subscribe(request.data),
            "#unsubscribe" => self.unsubscribe(request.data),
            "#authenticate" => return self.authenticate(request),
            "#removeAuthToken" => {
                self.socket.deauthenticate();
                Ok(None)
            }
            "#handshake" => refused(ErrorCode::BadRequest, "the handshake is done already"),
            other => {
                let message = format!("no such built-in event: {}", shorten(other));
                refused(ErrorCode::UnknownEvent, &message)
            }
        };
        self.answer(request, result);
    }

    fn authenticate(&mut self, request: &Incoming<'_>) {
        let token = request.data.and_then(|data| serde_json::from_str::<String>(data.get()).ok());
        let outcome = match token {
            Some(token) => self.socket.authenticate(&token),
            None => Err(TokenError::Invalid("#authenticate takes a JWT, a string".into())),
        };
        if let Err(error) = outcome {
            self.socket.deauthenticate();
            if let Some(cid) = request.cid {
                let error = Some(BadToken { error: error.named(), is_bad_token: true });
                let answer = Response::<(), _> { rid: cid, data: None, error };
                self.socket.send(frame::to_text(&answer));
            }
            self.socket.transmit("#removeAuthToken", None);
        } else if let Some(cid) = request.cid {
            let answer = Authenticated { is_authenticated: true, auth_error: None };
            let data = to_raw_value(&answer).ok();
            self.socket.send(frame::answer(cid, data.as_deref()));
        }
        self.note_expiry();
    }

    fn subscribe(&self, data: Option<&RawValue>) -> Answered {
        let argument = data.and_then(|data| serde_json::from_str::<Subscribe>(data.get()).ok());
        let Some(Subscribe { channel }) = argument else {
            let message = "#subscribe takes {\"channel\": \"…\"}";
            return Err(RoomError::new(ErrorCode::BadRequest, message));
        };
        let refused = |why: &str| {
            let message = format!("not allowed on channel {}: {why}", shorten(&channel));
            Err(RoomError::new(ErrorCode::NotAllowed, message))
        };
        if channel.starts_with(ROOM) {
            // The room decides what comes on its channel: nothing is kept of the subscription.
            return match self.sockets.application.may_subscribe(&self.socket, &channel) {
                true => Ok(None),
                false => refused("join its room first"),
            };
        }
        check_channel_name(&channel)?;
        let subscribed = self.socket.with_rights(|grants| {
            let may = grants.sockets.may_subscribe(&channel);
            may.then(|| self.sockets.shared.hub.subscribe(&self.socket, &channel))
        });
        let Some(subscribed) = subscribed else {
            return refused("the token's sockets.subscribe must name it");
        };
        let options = &self.sockets.options;
        match subscribed {
            Ok(()) => Ok(None),
            Err(Full::Socket) => {
                let most = options.channels_per_socket;
                refused(&format!("this socket has its {most} channels: unsubscribe from one"))
            }
            Err(Full::Channel) => {
                let most = options.channel_subscribers;
                refused(&format!("it has its {most} subscribers: try again later"))
            }
        }
    }

    /// The argument is a bare string. If there is no subscription, that is no error.
    fn unsubscribe(&self, data: Option<&RawValue>) -> Answered {
        let channel = data.and_then(|data| serde_json::from_str::<String>(data.get()).ok());
        let Some(channel) = channel else {
            let message = "#unsubscribe takes the channel's name, a string";
            return Err(RoomError::new(ErrorCode::BadRequest, message));
        };
        self.sockets.shared.hub.unsubscribe(&self.socket, &channel);
        Ok(None)
    }

    fn publish(&self, data: Option<&RawValue>) -> Answered {
        let refuse = |code, message: String| {
            self.sockets.metrics.dropped(PLACE, reason::REFUSED);
            Err(RoomError::new(code, message))
        };
        let argument = data.and_then(|data| serde_json::from_str::<Published>(data.get()).ok());
        let Some(Published { channel, data }) = argument else {
            let message = "#publish takes {\"channel\": \"…\", \"data\": …}";
            return refuse(ErrorCode::BadRequest, message.into());
        };
        if channel.starts_with(ROOM) {
            let message = "nobody publishes on the channels of rooms: use the room's calls";
            return refuse(ErrorCode::NotAllowed, message.into());
        }
        if let Err(error) = check_channel_name(&channel) {
            return refuse(error.code, error.message);
        }
        let may = |grants: &Grants| grants.sockets.may_publish(&channel);
        let data = data.map_or("null", RawValue::get);
        let most = self.sockets.options.message_bytes;
        if data.len() > most && self.socket.with_rights(may) {
            let message = format!("the message has {} of at most {most} bytes", data.len());
            return refuse(ErrorCode::TooLarge, message);
        }
        // The publisher's own copy, if it is subscribed, is queued before the answer.
        let publish = || self.sockets.shared.publish(&channel, data);
        if self.socket.with_rights(|grants| may(grants).then(publish)).is_none() {
            let name = shorten(&channel);
            let message =
                format!("not allowed on channel {name}: the token's sockets.publish must name it");
            return refuse(ErrorCode::NotAllowed, message);
        }
        Ok(None)
    }
}

impl Socket {
    /// What the socket may do: by its token, otherwise as a guest.
    pub(super) fn allowed(&self) -> Arc<Grants> {
        self.grants().unwrap_or_else(|| self.shared.auth.guest())
    }

    /// Does something that needs rights of the socket. They are not taken away meanwhile: who takes them waits.
    fn with_rights<T>(&self, act: impl FnOnce(&Grants) -> T) -> T {
        let own = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        match &*own {
            Some(grants) => act(grants),
            None => act(&self.shared.auth.guest()),
        }
    }

    /// The token was revoked: the socket has no rights any more, not even a guest's.
    pub(super) fn disown(&self) {
        let nothing = Some(Arc::new(Grants::default()));
        *self.grants.lock().unwrap_or_else(PoisonError::into_inner) = nothing;
    }

    /// Takes a token as the socket's own.
    pub(super) fn authenticate(&self, token: &str) -> Result<(), TokenError> {
        let grants = self.shared.auth.verify(token)?;
        self.set_grants(Some(grants));
        // A revocation looks for sockets that have the token. One that came meanwhile has missed this socket.
        if self.grants().is_some_and(|grants| self.shared.auth.is_revoked(&grants)) {
            self.deauthenticate();
            return Err(TokenError::Revoked);
        }
        Ok(())
    }

    /// Takes a token, and has the client keep it for its next handshake (`#setAuthToken`).
    ///
    /// # Errors
    /// The token does not hold. The one before it still counts, unless this one was revoked meanwhile.
    pub fn set_auth_token(&self, token: &str) -> Result<(), TokenError> {
        self.authenticate(token)?;
        let data = to_raw_value(&SetAuthToken { token: token.to_owned() }).ok();
        self.transmit("#setAuthToken", data.as_deref());
        Ok(())
    }

    /// From now on the socket is a guest's.
    pub(super) fn deauthenticate(&self) {
        self.set_grants(None);
    }

    /// Sets what the socket may do. Subscriptions that are no longer allowed end.
    fn set_grants(&self, grants: Option<Grants>) {
        *self.grants.lock().unwrap_or_else(PoisonError::into_inner) = grants.map(Arc::new);
        self.rights.changed();
        let allowed = self.allowed();
        for channel in self.channel_names() {
            if !allowed.sockets.may_subscribe(&channel) {
                self.kick_out(&channel, "the token does not allow it any more");
            }
        }
    }

    /// Ends a subscription and says so to the client.
    pub(super) fn kick_out(&self, channel: &str, message: &str) -> bool {
        let known = self.shared.hub.unsubscribe(self, channel);
        if known {
            let told = KickOut { channel: channel.to_owned(), message: message.to_owned() };
            self.transmit("#kickOut", to_raw_value(&told).ok().as_deref());
        }
        known
    }
}

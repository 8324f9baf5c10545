//! Front proxies (6.12), as users of this server: [`tls::front_proxy`] says who they are.

use http::HeaderMap;
pub use tls::front_proxy::{FrontProxies, Unusable};
use tls::front_proxy::{Headers, Named};
pub(crate) use tls::front_proxy::{Judge, says_for_whom, strip};

use super::User;
use crate::status::Refusal;

/// For whom a front proxy asks; nobody if it says no name, 401 if what it says is no text.
pub(crate) fn asks_for(headers: &HeaderMap) -> Result<Option<User>, Refusal> {
    let named = Headers::default().name(headers).map_err(|_| Refusal::unauthorized())?;
    Ok(named.map(|Named { name, uid, groups, extra }| User { name, uid, groups, extra }.authenticated()))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn asked(name: &'static [u8]) -> Result<Option<User>, Refusal> {
        let name = HeaderValue::from_bytes(name).expect("a value");
        asks_for(&HeaderMap::from_iter([(http::HeaderName::from_static("x-remote-user"), name)]))
    }

    #[test]
    fn rule_6_12_who_is_named_is_known_unless_it_is_nobody() {
        let groups = |name| asked(name).expect("text").expect("a name").groups;
        assert_eq!(groups(b"jane"), ["system:authenticated"]);
        assert_eq!(groups(b"system:anonymous"), [""; 0], "nobody is not known");
        assert_eq!(asked(b"").expect("text"), None);
        assert_eq!(asked(b"\xff").expect_err("no text").code(), 401);
    }
}

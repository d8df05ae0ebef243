//! Whom an access token names: its user, and the client that it was issued to.

use super::BearerError;
use crate::statement::Names;

/// The claims by which a token names somebody, as its issuer wrote them.
#[derive(Debug, Default)]
pub(super) struct NameClaims {
    pub(super) sub: Option<String>,
    pub(super) client_id: Option<String>,
    /// Stands for `client_id` where that is absent.
    pub(super) azp: Option<String>,
}

/// The names of a token's user and client, with their issuer's prefix. At least one of them is
/// there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) subject: Option<String>,
    pub(super) client_id: Option<String>,
}

impl Identity {
    /// Reads whom a token names whose issuer has this prefix. `client_ids` lists the clients that
    /// the token may be issued to, by the issuer's own names for them.
    pub(super) fn new(
        names: &Names,
        prefix: &str,
        claims: NameClaims,
        client_ids: Option<&[String]>,
    ) -> Result<Self, BearerError> {
        let present = |name: Option<String>| name.filter(|name| !name.is_empty());
        let subject = present(claims.sub).map(|name| names.qualify(prefix, &name)).transpose()?;
        let client = present(claims.client_id).or_else(|| present(claims.azp));
        let client_id = client.as_deref().map(|name| names.qualify(prefix, name)).transpose()?;
        if subject.is_none() && client_id.is_none() {
            return Err(BearerError::Nobody);
        }
        let is_listed = |list: &[String]| client.is_some_and(|client| list.contains(&client));
        if !client_ids.is_none_or(is_listed) {
            return Err(BearerError::Client);
        }
        Ok(Self { subject, client_id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_without_sub_and_client_names_nobody() {
        let refused = Identity::new(&Names::default(), "p:", NameClaims::default(), None);
        assert_eq!(refused, Err(BearerError::Nobody));
        let empty = NameClaims { sub: Some(String::new()), ..NameClaims::default() };
        let refused = Identity::new(&Names::default(), "p:", empty, None);
        assert_eq!(refused, Err(BearerError::Nobody));
    }

    #[test]
    fn clients_are_listed_by_the_names_that_their_issuer_gives_them() {
        let issuers = [("https://own.example", ""), ("https://partner.example", "p:")];
        let issuers = issuers.map(|(issuer, prefix)| (issuer.to_owned(), prefix.to_owned()));
        let names = Names::new(issuers.into(), Vec::new());
        let client = |client_id: &str, azp: &str| NameClaims {
            sub: None,
            client_id: Some(client_id.to_owned()),
            azp: Some(azp.to_owned()),
        };
        let user = NameClaims { sub: Some("backend".to_owned()), ..NameClaims::default() };
        let list = ["backend".to_owned()];
        #[rustfmt::skip]
        let cases = [
            (client("backend", ""),         Ok("p:backend")),
            (client("", "backend"),         Ok("p:backend")),
            (client("p:backend", ""),       Err(BearerError::Client)),
            (client("portal", "backend"),   Err(BearerError::Client)),
            (user,                          Err(BearerError::Client)),
        ];
        for (claims, expected) in cases {
            let case = format!("{claims:?}");
            let identity = Identity::new(&names, "p:", claims, Some(&list));
            let client = identity.map(|identity| identity.client_id);
            assert_eq!(client, expected.map(|name: &str| Some(name.to_owned())), "{case}");
        }
    }
}

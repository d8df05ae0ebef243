// A page of the application. It asks the API whose account this is, and who looks at it.
const byId = (id) => document.getElementById(id);
const visits = [];

document.addEventListener('impersonation', () => {
  visits.length = 0; // Yours: an agent's visit is not the user's
  document.documentElement.dataset.measured = 'no';
});

const { user, actor } = await (await fetch('/me')).json();
byId('who').textContent = actor ? `This is the account of ${user}. ${actor} is looking at it.` : `This is your account, ${user}.`;
byId('password').hidden = Boolean(actor); // the API refuses it in any case
visits.push(location.pathname);
